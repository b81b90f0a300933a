// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keyprobe

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/controllers/controllertest"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/tokens"
)

func TestTheProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer(account("bank", "robot"), account("kube-system", "default"), account("kube-system", "other"))
		a := start(t, server)
		var review *authenticationv1.TokenReview
		for _, action := range server.Clientset.Actions() {
			if create, ok := action.(clienttesting.CreateAction); ok {
				review = create.GetObject().(*authenticationv1.TokenReview)
			}
		}
		testutil.Check(t, "audiences of the review", []string{"sa-controller-manager/key-probe"}, review.Spec.Audiences)

		claims := jwt.MapClaims{}
		verified := func(*jwt.Token) (any, error) { return a.old.Public().Key, nil }
		token := testutil.Get(jwt.ParseWithClaims(review.Spec.Token, claims, verified, jwt.WithTimeFunc(time.Now)))(t)
		testutil.Check(t, "header", map[string]any{"alg": "ES256", "kid": a.old.ID(), "typ": "JWT"}, token.Header)
		if id, _ := claims["jti"].(string); id == "" {
			t.Error("the token has no ID")
		}
		delete(claims, "jti")
		now := float64(time.Now().Unix())
		testutil.Check(t, "claims", jwt.MapClaims{
			"iss": testIssuer, "sub": "system:serviceaccount:kube-system:default", "aud": []any{"sa-controller-manager/key-probe"},
			// A wrong clock is no refusal of the key.
			"iat": now - 3600, "nbf": now - 3600, "exp": now + 120 + 3600,
			"kubernetes.io": map[string]any{
				"namespace":      "kube-system",
				"serviceaccount": map[string]any{"name": "default", "uid": "uid-of-default"},
			},
		}, claims)
	})
}

// A token for an account on its way out may be refused for that, and any other one proves the key.
func TestADyingAccountIsNotProbedWith(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		terminating := func(namespace, name string) *corev1.ServiceAccount {
			going := account(namespace, name)
			controllertest.TerminatingAccount(going)
			return going
		}
		server := newAPIServer(terminating("kube-system", "default"), terminating("bank", "robot"), account("shop", "robot"))
		server.learn(testKeys().old)
		a := start(t, server)
		testutil.Check(t, "status", "key OLD signs", a.named(a.Status()))
		token := testutil.Get(tokens.Inspect(server.tokens[0]))(t)
		testutil.Check(t, "subject", "system:serviceaccount:shop:robot", token.Subject)
	})
}

// answering makes the discovery document say something, or the apiserver something else than it.
func answering(status int, body string) func(*Config, *apiserver) {
	return func(c *Config, s *apiserver) {
		c.Issuer = ""
		s.discover = func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
}

// accepting makes another authenticator behind kube-apiserver, such as a webhook, accept what it is shown.
func accepting(user, uid string, audiences ...string) func(*Config, *apiserver) {
	return func(_ *Config, s *apiserver) {
		s.accepted = func(status *authenticationv1.TokenReviewStatus) {
			status.Authenticated, status.Audiences = true, audiences
			status.User = authenticationv1.UserInfo{Username: user, UID: uid}
		}
	}
}

// saying makes kube-apiserver refuse the token for a reason.
func saying(reason string) func(*Config, *apiserver) {
	return func(_ *Config, s *apiserver) {
		s.accepted = func(status *authenticationv1.TokenReviewStatus) { status.Authenticated, status.Error = false, reason }
	}
}

func TestWhyAKeyIsNotProven(t *testing.T) {
	t.Parallel()
	const (
		lookUp   = "look up the issuer at /.well-known/openid-configuration"
		orSet    = lookUp + ", because none was given: "
		noIssuer = lookUp + ": the document names none, and none was given"
		refused  = "kube-apiserver refuses its tokens: "
		user     = "system:serviceaccount:kube-system:default"

		wrongIssuer = `the issuer that was given is "https://wrong.example.com", and kube-apiserver's is "` + testIssuer +
			`": it accepts the key with its own only`
	)
	cases := map[string]struct {
		reason  string
		empty   bool // no account
		world   func(*Config, *apiserver)
		problem string // what the status says; "" if the key is proven
	}{
		"Accepted":   {},
		"Discovered": {reason: "the document says what no flag says", world: func(c *Config, _ *apiserver) { c.Issuer = "" }},

		"UnknownKey": {world: func(_ *Config, s *apiserver) { clear(s.known) }, problem: refused + "[invalid bearer token]"},
		"NamesakeAccount": {
			reason:  "the apiserver has an account of another UID by now, which says nothing about the key",
			world:   func(_ *Config, s *apiserver) { s.reviewing = func(string) { s.recreate() } },
			problem: "service account kube-system/default was deleted during the proof",
		},
		"WrongIssuer": {
			reason: "the discovery document has the right issuer, with which the key is accepted",
			world:  func(c *Config, _ *apiserver) { c.Issuer = "https://wrong.example.com" }, problem: wrongIssuer,
		},
		"WrongIssuerUnknownKey": {
			reason:  "the key is refused with the right issuer too",
			world:   func(c *Config, s *apiserver) { c.Issuer = "https://wrong.example.com"; clear(s.known) },
			problem: refused + "it gives no reason (is the issuer right?)",
		},
		"WrongIssuerNoDocument": {
			reason: "the right issuer is not known", world: func(c *Config, s *apiserver) {
				answering(http.StatusNotFound, "404 page not found")(c, s)
				c.Issuer = "https://wrong.example.com"
			},
			problem: refused + "it gives no reason (is the issuer right?)",
		},
		"AnotherUser": {
			world:   accepting("jane", "uid-of-default", probeAudience),
			problem: refused + `another authenticator takes it for "jane" with UID "uid-of-default", want "` + user + `" with UID "uid-of-default"`,
		},
		"AnotherUID": {
			world:   accepting(user, "old", probeAudience),
			problem: refused + `another authenticator takes it for "` + user + `" with UID "old", want "` + user + `" with UID "uid-of-default"`,
		},
		"ClockIsFast": {
			reason: "it is asked with a token that it takes for expired, and so it has the key",
			world:  saying("[invalid bearer token, service account token has expired]"),
			problem: "the clocks of kube-apiserver and of this host differ by more than 1h0m0s: " +
				"[invalid bearer token, service account token has expired]",
		},
		"ClockIsSlow": {
			world:   saying("service account token is not valid yet"),
			problem: "the clocks of kube-apiserver and of this host differ by more than 1h0m0s: service account token is not valid yet",
		},
		"NoAudience": {
			world:   accepting(user, "uid-of-default"),
			problem: refused + `it was accepted for the audiences [], want "sa-controller-manager/key-probe"`,
		},
		"ReviewForbidden": {
			world:   func(_ *Config, s *apiserver) { s.broken = errors.New("tokenreviews is forbidden") },
			problem: "ask kube-apiserver for a token review: tokenreviews is forbidden",
		},
		"NoAccount": {empty: true, problem: "there is no service account yet to prove it with"},
		"NoDocument": {
			world: answering(http.StatusNotFound, "404 page not found"), problem: orSet + "the server could not find the requested resource",
		},
		"NotJSON": {world: answering(http.StatusOK, "<html>"), problem: noIssuer},
		"LegacyMember": {
			reason: "such a token would be read as a legacy one", world: answering(http.StatusOK, `{"issuer":"kubernetes/serviceaccount"}`),
			problem: "sign a token to prove key OLD: bound token: the issuer is " + tokens.LegacyIssuer + ", which marks legacy tokens",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				accounts := []runtime.Object{account("kube-system", "default")}
				if tc.empty {
					accounts = nil
				}
				server := newAPIServer(accounts...)
				server.learn(testKeys().old)
				a := start(t, server, func(c *Config) {
					if tc.world != nil {
						tc.world(c, server)
					}
				})

				status, log, events, result := "key OLD signs", []string{}, []string{}, "accepted"
				if tc.problem != "" {
					result = "unknown"
					status += "; not confirmed by kube-apiserver: " + tc.problem
					log = []string{"kube-apiserver has not confirmed the signing key keyID=OLD reason=" + tc.problem}
				}
				if tc.problem == wrongIssuer {
					events = []string{"sa-controller-manager: Warning WrongServiceAccountIssuer: " + wrongIssuer}
				}
				if strings.HasPrefix(tc.problem, refused) { // only the apiserver's own verdict is worth an Event about the key at the start
					result = "refused"
					events = []string{`sa-controller-manager: Warning SigningKeyRefused: kube-apiserver refuses tokens signed with key "OLD": ` +
						tc.problem + "; is its public key in a key file of kube-apiserver?"}
				}
				testutil.Check(t, tc.reason+": status", status, a.named(a.Status()))
				testutil.Check(t, tc.reason+": log", log, a.said())
				testutil.Check(t, tc.reason+": Events", events, a.told())
				testutil.Check(t, tc.reason+": may not sign", result == "refused", a.MaySign() != nil)
				testutil.Check(t, tc.reason+": metric", []string{fmt.Sprintf(`sacm_signing_key_probes_total{result=%q} 1`, result)},
					a.series("sacm_signing_key_probes"))
			})
		})
	}
}

func TestNoTokenIsShown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := knowing()
		a := start(t, server)
		a.give(a.next)
		server.set(func(s *apiserver) { s.broken = errors.New("connection refused") })
		time.Sleep(time.Minute)
		synctest.Wait()
		shown := strings.Join(slices.Concat(a.said(), a.told(), a.series("sacm_"), []string{a.Status()}), "\n")
		if len(server.tokens) < 3 || shown == "" {
			t.Fatalf("%d probes and %d bytes of text are too few to prove anything", len(server.tokens), len(shown))
		}
		for _, token := range server.tokens {
			for segment := range strings.SplitSeq(token, ".") {
				if strings.Contains(shown, segment[:12]) {
					t.Errorf("a part of a probe is in\n%s", shown)
				}
			}
		}
	})
}
