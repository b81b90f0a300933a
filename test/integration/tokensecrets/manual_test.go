// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecrets

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/test/integration/testcluster"
)

func longName(length int) string { return strings.Repeat("a", length) }

// TestManualMode covers what is done with token Secrets that users make: cases 7,
// 9, 10, 12 and 13.
func TestManualMode(t *testing.T) {
	c := testcluster.Shared(t)
	m := c.Manage(t, "--token-secrets=manual")

	t.Run("FilledFromTheAnnotationAlone", func(t *testing.T) {
		t.Parallel()
		namespace := c.Namespace(t)
		account := c.CreateAccount(t, namespace, "someone")
		c.CreateSecret(t, testcluster.TokenSecret(namespace, "mine", "someone"))
		secret := c.AwaitFilled(t, namespace, "mine")
		c.ExpectComplete(t, secret, account)
		c.ExpectAccepted(t, secret, account)
		if now := c.GetAccount(t, namespace, "someone"); len(now.Secrets) > 0 {
			t.Errorf("the account references %v, want nothing", testcluster.ReferenceNames(now))
		}
	})

	t.Run("NoSecretIsMade", func(t *testing.T) {
		t.Parallel()
		namespace := c.Namespace(t)
		c.CreateAccount(t, namespace, "someone")
		c.AwaitProcessed(t, m)
		if secrets := c.AwaitSecrets(t, namespace, func([]*corev1.Secret) error { return nil }); len(secrets) > 0 {
			t.Errorf("there are %d Secrets", len(secrets))
		}
	})

	t.Run("WhatUsersPutThereStays", func(t *testing.T) {
		t.Parallel()
		namespace := c.Namespace(t)
		c.CreateAccount(t, namespace, "someone")
		c.CreateSecret(t, testcluster.TokenSecret(namespace, "mine", "someone",
			testcluster.WithData("extra", "kept"), testcluster.WithLabel("test/mine", "kept"), testcluster.WithFinalizer,
			func(s *corev1.Secret) { s.Annotations["test/mine"] = "kept" }))
		secret := c.AwaitFilled(t, namespace, "mine")
		if got := string(secret.Data["extra"]) + secret.Labels["test/mine"] + secret.Annotations["test/mine"]; got != "keptkeptkept" {
			t.Errorf("something of the user's is gone: %q", got)
		}
	})

	t.Run("EmptiedTokenIsIssuedAgain", func(t *testing.T) {
		t.Parallel()
		namespace := c.Namespace(t)
		account := c.CreateAccount(t, namespace, "someone")
		c.CreateSecret(t, testcluster.TokenSecret(namespace, "mine", "someone"))
		first := c.AwaitFilled(t, namespace, "mine")
		c.PatchSecret(t, namespace, "mine", `{"data":{"token":null}}`)
		second := c.AwaitFilled(t, namespace, "mine")
		if diff := cmp.Diff(first.Data, second.Data); diff != "" {
			t.Errorf("the same inputs gave something else (-first +second):\n%s", diff)
		}
		c.ExpectAccepted(t, second, account)
	})

	t.Run("ChangedRootCAIsRepaired", func(t *testing.T) {
		t.Parallel()
		namespace := c.Namespace(t)
		c.CreateAccount(t, namespace, "someone")
		c.CreateSecret(t, testcluster.TokenSecret(namespace, "mine", "someone", testcluster.WithData("ca.crt", "mine")))
		c.AwaitSecret(t, namespace, "mine", func(secret *corev1.Secret) error {
			if string(secret.Data["ca.crt"]) != c.RootCA(t) {
				return fmt.Errorf("ca.crt of %q is another one", secret.Name)
			}
			return testcluster.HasToken(secret)
		})
	})

	t.Run("UIDAnnotationComesBack", func(t *testing.T) {
		t.Parallel()
		namespace := c.Namespace(t)
		account := c.CreateAccount(t, namespace, "someone")
		c.CreateSecret(t, testcluster.TokenSecret(namespace, "mine", "someone"))
		c.AwaitFilled(t, namespace, "mine")
		c.PatchSecret(t, namespace, "mine", `{"metadata":{"annotations":{"`+corev1.ServiceAccountUIDKey+`":null}}}`)
		c.AwaitSecret(t, namespace, "mine", func(secret *corev1.Secret) error {
			if got := secret.Annotations[corev1.ServiceAccountUIDKey]; got != string(account.UID) {
				return fmt.Errorf("the UID annotation is %q", got)
			}
			return nil
		})
	})

	t.Run("MarkedInvalidGetsNoToken", func(t *testing.T) {
		t.Parallel()
		namespace := c.Namespace(t)
		account := c.CreateAccount(t, namespace, "someone")
		secret := c.CreateSecret(t, testcluster.TokenSecret(namespace, "mine", "someone", testcluster.WithLabel(testcluster.InvalidSinceLabel, "2026-01-02")))
		c.AwaitWarning(t, testcluster.AboutSecret(secret, "TokenMarkedInvalid"), testcluster.InvalidSinceLabel)
		c.AwaitProcessed(t, m)
		if testcluster.HasToken(c.GetSecret(t, namespace, "mine")) == nil {
			t.Error("a token was issued")
		}
		c.PatchSecret(t, namespace, "mine", `{"metadata":{"labels":{"`+testcluster.InvalidSinceLabel+`":null}}}`)
		c.ExpectAccepted(t, c.AwaitFilled(t, namespace, "mine"), account)
	})

	t.Run("TerminatingAccountGetsNoToken", func(t *testing.T) {
		t.Parallel()
		namespace := c.Namespace(t)
		c.CreateAccount(t, namespace, "someone", func(a *corev1.ServiceAccount) { a.Finalizers = []string{"test/finalizer"} })
		c.DeleteAccount(t, namespace, "someone")
		c.AwaitProcessed(t, m) // the watch of accounts has shown that it is being deleted
		secret := c.CreateSecret(t, testcluster.TokenSecret(namespace, "mine", "someone"))
		c.AwaitProcessed(t, m)
		untouched(t, c, secret)
	})

	t.Run("TerminatingSecretGetsNoToken", func(t *testing.T) {
		t.Parallel()
		namespace := c.Namespace(t)
		c.CreateSecret(t, testcluster.TokenSecret(namespace, "mine", "someone", testcluster.WithFinalizer))
		c.DeleteSecret(t, namespace, "mine")
		secret := c.GetSecret(t, namespace, "mine")
		c.CreateAccount(t, namespace, "someone")
		c.AwaitProcessed(t, m)
		untouched(t, c, secret)
	})

	t.Run("OtherTypesAreIgnored", func(t *testing.T) {
		t.Parallel()
		namespace := c.Namespace(t)
		c.CreateAccount(t, namespace, "someone")
		secret := c.CreateSecret(t, testcluster.TokenSecret(namespace, "mine", "someone", func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque }))
		c.AwaitProcessed(t, m)
		untouched(t, c, secret)
	})
}

// TestRefusals covers wrong token Secrets and the Events about them:
// cases 7 and 9.
func TestRefusals(t *testing.T) {
	c := testcluster.Shared(t)
	m := c.Manage(t, "--token-secrets=manual")
	neighbours := c.Namespace(t)
	c.CreateAccount(t, neighbours, "neighbour")
	c.CreateSecret(t, testcluster.TokenSecret(neighbours, "theirs", "neighbour"))
	theirs := string(c.AwaitFilled(t, neighbours, "theirs").Data["token"])

	cases := map[string]struct {
		reason  string
		changes func(*testing.T, *corev1.ServiceAccount) []testcluster.SecretOption
		event   string // reason of the Event
		note    string // part of its note
		stays   []string
		filled  []string
	}{
		"Immutable": {
			reason: "case 9: one Event and no loop",
			changes: func(*testing.T, *corev1.ServiceAccount) []testcluster.SecretOption {
				return []testcluster.SecretOption{testcluster.Immutable}
			},
			event: "ImmutableTokenSecret", note: "without immutable: true",
		},
		"NotAToken": {
			reason: "a non-empty token is never overwritten",
			changes: func(*testing.T, *corev1.ServiceAccount) []testcluster.SecretOption {
				return []testcluster.SecretOption{testcluster.WithData("token", "secret-of-a-user")}
			},
			event: "TokenSecretMismatch", note: "not a service account token",
			stays: []string{"token"}, filled: []string{"ca.crt", "namespace"},
		},
		"TokenOfAnotherAccount": {
			reason: "it was copied from another Secret",
			changes: func(*testing.T, *corev1.ServiceAccount) []testcluster.SecretOption {
				return []testcluster.SecretOption{testcluster.WithData("token", theirs)}
			},
			event: "TokenSecretMismatch", note: "not for this Secret",
			stays: []string{"token"}, filled: []string{"ca.crt", "namespace"},
		},
		"TokenOfAnEarlierAccount": {
			reason: "the account was deleted and created again",
			changes: func(t *testing.T, account *corev1.ServiceAccount) []testcluster.SecretOption {
				t.Helper()
				claims := testcluster.LegacyClaims(account, "mine")
				claims["kubernetes.io/serviceaccount/service-account.uid"] = "earlier"
				return []testcluster.SecretOption{testcluster.WithData("token", testcluster.ForgedToken(t, map[string]any{"alg": "ES256", "kid": "x"}, claims))}
			},
			event: "TokenSecretMismatch", note: "for an earlier ServiceAccount",
			stays: []string{"token"}, filled: []string{"ca.crt", "namespace"},
		},
		"UnknownKey": {
			reason: "all claims fit",
			changes: func(t *testing.T, account *corev1.ServiceAccount) []testcluster.SecretOption {
				t.Helper()
				return []testcluster.SecretOption{testcluster.WithData("token", testcluster.ForgedToken(t, map[string]any{"alg": "ES256", "kid": "unheard-of"}, testcluster.LegacyClaims(account, "mine")))}
			},
			event: "UnknownSigningKey", note: `"unheard-of"`,
			stays: []string{"token"}, filled: []string{"ca.crt", "namespace"},
		},
		"WrongNamespaceKey": {
			changes: func(*testing.T, *corev1.ServiceAccount) []testcluster.SecretOption {
				return []testcluster.SecretOption{testcluster.WithData("namespace", "kube-system")}
			},
			event: "TokenSecretMismatch", note: "data.namespace",
			stays: []string{"namespace"}, filled: []string{"ca.crt", "token"},
		},
		"NameInUpperCase": {
			changes: func(*testing.T, *corev1.ServiceAccount) []testcluster.SecretOption {
				return []testcluster.SecretOption{named("Someone")}
			},
			event: "InvalidServiceAccountName",
		},
		"NameWithNewline": {
			changes: func(*testing.T, *corev1.ServiceAccount) []testcluster.SecretOption {
				return []testcluster.SecretOption{named("someone\n")}
			},
			event: "InvalidServiceAccountName",
		},
		"NameWithSlash": {
			reason: "it would lead into another path of the API",
			changes: func(*testing.T, *corev1.ServiceAccount) []testcluster.SecretOption {
				return []testcluster.SecretOption{named("../../" + neighbours + "/neighbour")}
			},
			event: "InvalidServiceAccountName",
		},
		"NameTooLong": {
			changes: func(*testing.T, *corev1.ServiceAccount) []testcluster.SecretOption {
				return []testcluster.SecretOption{named(longName(200 << 10))}
			},
			event: "InvalidServiceAccountName",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := c.Namespace(t)
			account := c.CreateAccount(t, namespace, "someone")
			before := c.CreateSecret(t, testcluster.TokenSecret(namespace, "mine", "someone", tc.changes(t, account)...))
			event := testcluster.AboutSecret(before, tc.event)
			c.AwaitWarning(t, event, tc.note)
			after := c.AwaitSecret(t, namespace, "mine", func(secret *corev1.Secret) error {
				for _, key := range tc.filled {
					if len(secret.Data[key]) == 0 {
						return fmt.Errorf("%s is not filled", key)
					}
				}
				return nil
			})
			c.AwaitProcessed(t, m)
			untouched(t, c, after)
			c.ExpectOnce(t, event)
			want := slices.Sorted(slices.Values(slices.Concat(tc.stays, tc.filled)))
			if diff := cmp.Diff(want, slices.Sorted(maps.Keys(after.Data)), testcluster.EquateEmpty()); diff != "" {
				t.Errorf("%s\nkeys (-want +got):\n%s", tc.reason, diff)
			}
			for _, key := range tc.stays {
				if !bytes.Equal(after.Data[key], before.Data[key]) {
					t.Errorf("%s: %s was overwritten", tc.reason, key)
				}
			}
		})
	}
}

func named(account string) testcluster.SecretOption {
	return func(s *corev1.Secret) { s.Annotations[corev1.ServiceAccountNameKey] = account }
}

// untouched checks that a Secret was not written.
func untouched(t *testing.T, c *testcluster.ControlPlane, before *corev1.Secret) {
	t.Helper()
	now := c.GetSecret(t, before.Namespace, before.Name)
	if now.UID != before.UID || now.ResourceVersion != before.ResourceVersion {
		t.Errorf("secret %s/%s has changed:\n%s", before.Namespace, before.Name, cmp.Diff(before, now))
	}
}

// TestUniqueClaims covers unique claims, with which a new token never equals a revoked one.
func TestUniqueClaims(t *testing.T) {
	c := testcluster.Shared(t)
	c.Manage(t, "--token-secrets=manual", "--legacy-token-claims=unique", "--logging-format=json")
	namespace := c.Namespace(t)
	account := c.CreateAccount(t, namespace, "someone")
	var tokens [][]byte
	for range 2 {
		c.CreateSecret(t, testcluster.TokenSecret(namespace, "mine", "someone"))
		tokens = append(tokens, c.AwaitFilled(t, namespace, "mine").Data["token"])
		c.DeleteSecret(t, namespace, "mine")
	}
	c.CreateSecret(t, testcluster.TokenSecret(namespace, "mine", "someone"))
	secret := c.AwaitFilled(t, namespace, "mine")
	c.ExpectAccepted(t, secret, account)
	for _, former := range tokens {
		c.AwaitRefused(t, former)
	}
	_, claims := testcluster.DecodeToken(t, secret.Data["token"])
	for _, claim := range []string{"iat", "jti"} {
		if claims[claim] == nil {
			t.Errorf("the token has no claim %s", claim)
		}
		delete(claims, claim)
	}
	if diff := cmp.Diff(testcluster.LegacyClaims(account, "mine"), claims); diff != "" {
		t.Errorf("the other claims (-want +got):\n%s", diff)
	}
}
