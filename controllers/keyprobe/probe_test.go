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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/controllers/controllertest"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/tokens"
)

func TestTheProbe(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
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
		id, _ := claims["jti"].(string)
		testutil.Expect(t, id != "", "the token has no ID")
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
	testutil.InBubble(t, func(t *testing.T) {
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
			world: accepting("jane", "uid-of-default", probeAudience),
			problem: refused + `another authenticator takes it for "jane" with UID "uid-of-default", want "` + user +
				`" with UID "uid-of-default"`,
		},
		"AnotherUID": {
			world: accepting(user, "old", probeAudience),
			problem: refused + `another authenticator takes it for "` + user + `" with UID "old", want "` + user +
				`" with UID "uid-of-default"`,
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
			world: answering(http.StatusNotFound, "404 page not found"), problem: orSet +
				"the server could not find the requested resource",
		},
		"NotJSON": {world: answering(http.StatusOK, "<html>"), problem: noIssuer},
		"LegacyMember": {
			reason: "such a token would be read as a legacy one", world: answering(http.StatusOK, `{"issuer":"kubernetes/serviceaccount"}`),
			problem: "sign a token to prove key OLD: bound token: the issuer is " + tokens.LegacyIssuer + ", which marks legacy tokens",
		},
	}
	for name, tc := range cases {
		testutil.Bubble(t, name, func(t *testing.T) {
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
				events = []string{`sa-controller-manager: Warning SigningKeyRefused: kube-apiserver refuses tokens signed with ` +
					`key "OLD": ` +
					tc.problem + "; is its public key in a key file of kube-apiserver?"}
			}
			testutil.Check(t, tc.reason+": status", status, a.named(a.Status()))
			testutil.Check(t, tc.reason+": log", log, a.said())
			testutil.Check(t, tc.reason+": Events", events, a.told())
			testutil.Check(t, tc.reason+": may not sign", result == "refused", a.MaySign() != nil)
			testutil.Check(t, tc.reason+": metric", []string{fmt.Sprintf(`sacm_signing_key_probes_total{result=%q} 1`, result)},
				a.series("sacm_signing_key_probes"))
		})
	}
}

func TestNoTokenIsShown(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		server := knowing()
		a := start(t, server)
		a.give(a.next)
		server.set(func(s *apiserver) { s.broken = errors.New("connection refused") })
		testutil.Pause(time.Minute)
		shown := strings.Join(slices.Concat(a.said(), a.told(), a.series("sacm_"), []string{a.Status()}), "\n")
		testutil.Require(t, len(server.tokens) >= 3 && shown != "", "%d probes and %d bytes of text are too few to prove anything",
			len(server.tokens), len(shown))
		for _, token := range server.tokens {
			for segment := range strings.SplitSeq(token, ".") {
				testutil.Expect(t, !strings.Contains(shown, segment[:12]), "a part of a probe is in\n%s", shown)
			}
		}
	})
}

// The tests run in synctest bubbles: the clock stands still while anything moves, so back-off takes
// no time.

// TestAKeyRingDecides has the ring changed past the prober: the key that signs is proved, and
// signs whatever comes out.
func TestAKeyRingDecides(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		server := knowing(testKeys().old)
		a := start(t, server)
		keys := testKeys()
		a.Ring.Set(signing.NewRing(keys.old.As(signing.Active), keys.next.As(signing.Next)))
		synctest.Wait()
		testutil.Check(t, "keys once the next one is published", []string{
			`sacm_signing_key{algorithm="ES256",key_id="NEXT",state="next"} 1`,
			`sacm_signing_key{algorithm="ES256",key_id="OLD",state="active"} 1`,
		}, a.series("sacm_signing_key{"))
		testutil.Check(t, "status once the next one is published", "key OLD signs", a.named(a.Status()))

		a.Ring.Set(signing.NewRing(keys.next.As(signing.Active), keys.old.Public().As(signing.Retired)))
		synctest.Wait()
		testutil.Check(t, "key that signs", "NEXT", a.signs())
		if err := a.MaySign(); err == nil || a.named(err.Error()) != "kube-apiserver refuses tokens of key NEXT" {
			t.Errorf("MaySign of a key that was refused: %v", err)
		}
		testutil.Check(t, "status of a key that is not accepted",
			"key NEXT signs; not confirmed by kube-apiserver: kube-apiserver refuses its tokens: [invalid bearer token]",
			a.named(a.Status()))
		testutil.Check(t, "Events", []string{
			`sa-controller-manager: Warning SigningKeyRefused: kube-apiserver refuses tokens signed with key "NEXT": ` +
				`kube-apiserver refuses its tokens: [invalid bearer token]; is its public key in a key file of kube-apiserver?`,
		}, a.told())
		server.learn(keys.next)
		testutil.Pause(maxBackoff)
		testutil.Check(t, "status once it is accepted", "key NEXT signs", a.named(a.Status()))
		err := a.MaySign()
		testutil.Expect(t, err == nil, "MaySign of a key that is accepted: %v", err)
		testutil.Check(t, "calls of Proven, for OLD and NEXT", 2, a.proven)

		probes := len(a.reviewed())
		testutil.Pause(time.Hour)
		testutil.Check(t, "further probes after an hour", int(time.Hour/provePeriod), len(a.reviewed())-probes)
	})
}

// TestARefusalTakesTheProofBack: a kube-apiserver that was restarted with other keys refuses what it had
// accepted, and accepts it again once it has the key.
func TestARefusalTakesTheProofBack(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		notice func(*trial)
	}{
		"ByTime":      {"nothing else shows it", func(*trial) { time.Sleep(provePeriod) }},
		"ByReconnect": {"the watches begin again", func(a *trial) { a.Reconnected() }},
	} {
		testutil.Bubble(t, name, func(t *testing.T) {
			keys := testKeys()
			server := knowing(keys.old)
			a := start(t, server)
			err := errors.Join(a.MaySign(), a.MayFill())
			testutil.Require(t, err == nil && a.Confirmed(keys.old.ID()), "at the start: %v", err)
			server.set(func(s *apiserver) { s.broken = errors.New("connection refused") })
			testutil.Pause(time.Hour)
			if err := errors.Join(a.MaySign(), a.MayFill()); err != nil || !a.Confirmed(keys.old.ID()) {
				t.Errorf("after an hour without an answer the last one does not count: %v", err)
			}
			server.set(func(s *apiserver) { s.broken = nil })
			time.Sleep(maxBackoff) // it is proved again
			server.set(func(s *apiserver) { clear(s.known) })
			tc.notice(a)
			synctest.Wait()
			for what, err := range map[string]error{"MaySign": a.MaySign(), "MayFill": a.MayFill()} {
				testutil.Expect(t, err != nil && a.named(err.Error()) == "kube-apiserver refuses tokens of key OLD",
					"%s: %s after the refusal: %v",
					tc.reason, what, err)
			}
			testutil.Expect(t, !a.Confirmed(keys.old.ID()), "a refused key is confirmed")
			testutil.Check(t, "status",
				"key OLD signs; not confirmed by kube-apiserver: kube-apiserver refuses its tokens: [invalid bearer token]",
				a.named(a.Status()))
			server.learn(keys.old)
			testutil.Pause(maxBackoff)
			if err := a.MayFill(); err != nil {
				t.Errorf("once it is accepted again: %v", err)
			}
			testutil.Check(t, "calls of Proven", 2, a.proven)
		})
	}
}

// TestTheFirstFillWaits: no token without an end is signed before the first answer, as long as there can
// be one. Other tokens do not wait.
func TestTheFirstFillWaits(t *testing.T) {
	t.Parallel()
	down := errors.New("connection refused")
	forbidden := apierrors.NewForbidden(authenticationv1.Resource("tokenreviews"), "", errors.New("no rule"))
	for name, tc := range map[string]struct {
		reason string
		broken error
		issuer string
		early  string // why not within 30 s, "" if it may
		late   string
	}{
		"Accepted":   {reason: "the usual case"},
		"Down":       {"a cluster without an answer must not stand still", down, "", "has not said yet whether it accepts key OLD", ""},
		"Forbidden":  {"a mistake that an operator can correct", forbidden, "", "may not ask kube-apiserver", "may not ask kube-apiserver"},
		"OtherIssue": {"tokens of Secrets have another issuer anyhow", nil, "https://wrong.example.com", "", ""},
	} {
		testutil.Bubble(t, name, func(t *testing.T) {
			server := knowing(testKeys().old)
			server.set(func(s *apiserver) { s.broken = tc.broken })
			a := start(t, server, func(c *Config) {
				if tc.issuer != "" {
					c.Issuer = tc.issuer
				}
			})
			check := func(when, want string) {
				t.Helper()
				if err := a.MaySign(); err != nil {
					t.Errorf("%s: MaySign %s: %v", tc.reason, when, err)
				}
				switch err := a.MayFill(); {
				case err == nil && want == "":
				case err == nil || want == "" || !strings.Contains(a.named(err.Error()), want):
					t.Errorf("%s: MayFill %s: %v, want %q", tc.reason, when, err, want)
				}
			}
			check("at once", tc.early)
			testutil.Pause(firstAnswer - time.Second)
			check("before the time is over", tc.early)
			testutil.Pause(2 * time.Second)
			check("afterwards", tc.late)
		})
	}
}

func TestBackOff(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		server := knowing(testKeys().old)
		a := start(t, server)

		a.give(a.next)
		time.Sleep(100 * time.Second)
		a.give(a.third) // another key starts with no backoff
		time.Sleep(4 * time.Second)
		server.set(func(s *apiserver) { s.broken = errors.New("connection refused") }) // and so does another reason
		time.Sleep(11 * time.Second)

		testutil.Check(t, "probes", []string{
			"OLD at 0s", "NEXT at 0s", "NEXT at 1s", "NEXT at 3s", "NEXT at 7s", "NEXT at 15s", "NEXT at 31s", "NEXT at 1m1s",
			"NEXT at 1m31s",
			"THIRD at 1m40s", "THIRD at 1m41s", "THIRD at 1m43s", "THIRD at 1m47s", "THIRD at 1m48s", "THIRD at 1m50s", "THIRD at 1m54s",
		}, a.reviewed())
	})
}

// A connection that is reset has another local port in its error each time.
func TestBackOffGrowsWhateverTheText(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		server := knowing()
		server.set(func(s *apiserver) {
			s.reviewing = func(string) {
				s.broken = fmt.Errorf("read tcp 127.0.0.1:%d->127.0.0.1:6443: connection reset by peer", 40000+len(s.reviews))
			}
		})
		a := start(t, server)
		testutil.Pause(10 * time.Second)
		testutil.Check(t, "probes", []string{"OLD at 0s", "OLD at 1s", "OLD at 3s", "OLD at 7s"}, a.reviewed())
	})
}
