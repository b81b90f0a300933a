// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func longName(length int) string { return strings.Repeat("a", length) }

// TestManualMode covers what is done with token Secrets that users make: cases 7,
// 9, 10, 12 and 13.
func TestManualMode(t *testing.T) {
	c := sharedControlPlane(t)
	m := c.manage(t, "--token-secrets=manual")

	t.Run("FilledFromTheAnnotationAlone", func(t *testing.T) {
		t.Parallel()
		namespace := c.namespace(t)
		account := c.createAccount(t, namespace, "someone")
		c.createSecret(t, tokenSecret(namespace, "mine", "someone"))
		secret := c.awaitFilled(t, namespace, "mine")
		c.complete(t, secret, account)
		c.accepted(t, secret, account)
		if now := c.getAccount(t, namespace, "someone"); len(now.Secrets) > 0 {
			t.Errorf("the account references %v, want nothing", referenceNames(now))
		}
	})

	t.Run("NoSecretIsMade", func(t *testing.T) {
		t.Parallel()
		namespace := c.namespace(t)
		c.createAccount(t, namespace, "someone")
		c.fence(t, m)
		if secrets := c.awaitSecrets(t, namespace, func([]*corev1.Secret) error { return nil }); len(secrets) > 0 {
			t.Errorf("there are %d Secrets", len(secrets))
		}
	})

	t.Run("WhatUsersPutThereStays", func(t *testing.T) {
		t.Parallel()
		namespace := c.namespace(t)
		c.createAccount(t, namespace, "someone")
		c.createSecret(t, tokenSecret(namespace, "mine", "someone",
			withData("extra", "kept"), withLabel("test/mine", "kept"), withFinalizer,
			func(s *corev1.Secret) { s.Annotations["test/mine"] = "kept" }))
		secret := c.awaitFilled(t, namespace, "mine")
		if got := string(secret.Data["extra"]) + secret.Labels["test/mine"] + secret.Annotations["test/mine"]; got != "keptkeptkept" {
			t.Errorf("something of the user's is gone: %q", got)
		}
	})

	t.Run("EmptiedTokenIsIssuedAgain", func(t *testing.T) {
		t.Parallel()
		namespace := c.namespace(t)
		account := c.createAccount(t, namespace, "someone")
		c.createSecret(t, tokenSecret(namespace, "mine", "someone"))
		first := c.awaitFilled(t, namespace, "mine")
		c.patchSecret(t, namespace, "mine", `{"data":{"token":null}}`)
		second := c.awaitFilled(t, namespace, "mine")
		if diff := cmp.Diff(first.Data, second.Data); diff != "" {
			t.Errorf("the same inputs gave something else (-first +second):\n%s", diff)
		}
		c.accepted(t, second, account)
	})

	t.Run("ChangedRootCAIsRepaired", func(t *testing.T) {
		t.Parallel()
		namespace := c.namespace(t)
		c.createAccount(t, namespace, "someone")
		c.createSecret(t, tokenSecret(namespace, "mine", "someone", withData("ca.crt", "mine")))
		c.awaitSecret(t, namespace, "mine", func(secret *corev1.Secret) error {
			if string(secret.Data["ca.crt"]) != c.certificateAuthority(t) {
				return fmt.Errorf("ca.crt of %q is another one", secret.Name)
			}
			return hasToken(secret)
		})
	})

	t.Run("UIDAnnotationComesBack", func(t *testing.T) {
		t.Parallel()
		namespace := c.namespace(t)
		account := c.createAccount(t, namespace, "someone")
		c.createSecret(t, tokenSecret(namespace, "mine", "someone"))
		c.awaitFilled(t, namespace, "mine")
		c.patchSecret(t, namespace, "mine", `{"metadata":{"annotations":{"`+corev1.ServiceAccountUIDKey+`":null}}}`)
		c.awaitSecret(t, namespace, "mine", func(secret *corev1.Secret) error {
			if got := secret.Annotations[corev1.ServiceAccountUIDKey]; got != string(account.UID) {
				return fmt.Errorf("the UID annotation is %q", got)
			}
			return nil
		})
	})

	t.Run("MarkedInvalidGetsNoToken", func(t *testing.T) {
		t.Parallel()
		namespace := c.namespace(t)
		account := c.createAccount(t, namespace, "someone")
		secret := c.createSecret(t, tokenSecret(namespace, "mine", "someone", withLabel(invalidSinceLabel, "2026-01-02")))
		c.awaitWarning(t, aboutSecret(secret, "TokenMarkedInvalid"), invalidSinceLabel)
		c.fence(t, m)
		if hasToken(c.getSecret(t, namespace, "mine")) == nil {
			t.Error("a token was issued")
		}
		c.patchSecret(t, namespace, "mine", `{"metadata":{"labels":{"`+invalidSinceLabel+`":null}}}`)
		c.accepted(t, c.awaitFilled(t, namespace, "mine"), account)
	})

	t.Run("TerminatingAccountGetsNoToken", func(t *testing.T) {
		t.Parallel()
		namespace := c.namespace(t)
		c.createAccount(t, namespace, "someone", func(a *corev1.ServiceAccount) { a.Finalizers = []string{"test/finalizer"} })
		c.deleteAccount(t, namespace, "someone")
		c.fence(t, m) // the watch of accounts has shown that it is being deleted
		secret := c.createSecret(t, tokenSecret(namespace, "mine", "someone"))
		c.fence(t, m)
		c.untouched(t, secret)
	})

	t.Run("TerminatingSecretGetsNoToken", func(t *testing.T) {
		t.Parallel()
		namespace := c.namespace(t)
		c.createSecret(t, tokenSecret(namespace, "mine", "someone", withFinalizer))
		c.deleteSecret(t, namespace, "mine")
		secret := c.getSecret(t, namespace, "mine")
		c.createAccount(t, namespace, "someone")
		c.fence(t, m)
		c.untouched(t, secret)
	})

	t.Run("OtherTypesAreIgnored", func(t *testing.T) {
		t.Parallel()
		namespace := c.namespace(t)
		c.createAccount(t, namespace, "someone")
		secret := c.createSecret(t, tokenSecret(namespace, "mine", "someone", func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque }))
		c.fence(t, m)
		c.untouched(t, secret)
	})
}

// TestRefusals covers what is wrong with a token Secret and what its owner is told:
// cases 7 and 9.
func TestRefusals(t *testing.T) {
	c := sharedControlPlane(t)
	m := c.manage(t, "--token-secrets=manual")
	neighbours := c.namespace(t)
	c.createAccount(t, neighbours, "neighbour")
	c.createSecret(t, tokenSecret(neighbours, "theirs", "neighbour"))
	theirs := string(c.awaitFilled(t, neighbours, "theirs").Data["token"])

	cases := map[string]struct {
		reason  string
		changes func(*testing.T, *corev1.ServiceAccount) []change
		event   string // reason of the Event
		note    string // part of its note
		stays   []string
		filled  []string
	}{
		"Immutable": {
			reason:  "case 9: one Event and no loop",
			changes: func(*testing.T, *corev1.ServiceAccount) []change { return []change{immutable} },
			event:   "ImmutableTokenSecret", note: "without immutable: true",
		},
		"NotAToken": {
			reason: "a non-empty token is never overwritten",
			changes: func(*testing.T, *corev1.ServiceAccount) []change {
				return []change{withData("token", "secret-of-a-user")}
			},
			event: "TokenSecretMismatch", note: "not a service account token",
			stays: []string{"token"}, filled: []string{"ca.crt", "namespace"},
		},
		"TokenOfAnotherAccount": {
			reason:  "somebody has copied it there",
			changes: func(*testing.T, *corev1.ServiceAccount) []change { return []change{withData("token", theirs)} },
			event:   "TokenSecretMismatch", note: "not for this Secret",
			stays: []string{"token"}, filled: []string{"ca.crt", "namespace"},
		},
		"TokenOfAnEarlierAccount": {
			reason: "the account was deleted and created again",
			changes: func(t *testing.T, account *corev1.ServiceAccount) []change {
				t.Helper()
				claims := legacyClaims(account, "mine")
				claims["kubernetes.io/serviceaccount/service-account.uid"] = "earlier"
				return []change{withData("token", forged(t, map[string]any{"alg": "ES256", "kid": "x"}, claims))}
			},
			event: "TokenSecretMismatch", note: "for an earlier ServiceAccount",
			stays: []string{"token"}, filled: []string{"ca.crt", "namespace"},
		},
		"UnknownKey": {
			reason: "all claims fit",
			changes: func(t *testing.T, account *corev1.ServiceAccount) []change {
				t.Helper()
				return []change{withData("token", forged(t, map[string]any{"alg": "ES256", "kid": "unheard-of"}, legacyClaims(account, "mine")))}
			},
			event: "UnknownSigningKey", note: `"unheard-of"`,
			stays: []string{"token"}, filled: []string{"ca.crt", "namespace"},
		},
		"WrongNamespaceKey": {
			changes: func(*testing.T, *corev1.ServiceAccount) []change {
				return []change{withData("namespace", "kube-system")}
			},
			event: "TokenSecretMismatch", note: "data.namespace",
			stays: []string{"namespace"}, filled: []string{"ca.crt", "token"},
		},
		"NameInUpperCase": {
			changes: func(*testing.T, *corev1.ServiceAccount) []change { return []change{named("Someone")} },
			event:   "InvalidServiceAccountName",
		},
		"NameWithNewline": {
			changes: func(*testing.T, *corev1.ServiceAccount) []change { return []change{named("someone\n")} },
			event:   "InvalidServiceAccountName",
		},
		"NameWithSlash": {
			reason: "it would lead into another path of the API",
			changes: func(*testing.T, *corev1.ServiceAccount) []change {
				return []change{named("../../" + neighbours + "/neighbour")}
			},
			event: "InvalidServiceAccountName",
		},
		"NameTooLong": {
			changes: func(*testing.T, *corev1.ServiceAccount) []change { return []change{named(longName(200 << 10))} },
			event:   "InvalidServiceAccountName",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := c.namespace(t)
			account := c.createAccount(t, namespace, "someone")
			before := c.createSecret(t, tokenSecret(namespace, "mine", "someone", tc.changes(t, account)...))
			told := aboutSecret(before, tc.event)
			c.awaitWarning(t, told, tc.note)
			after := c.awaitSecret(t, namespace, "mine", func(secret *corev1.Secret) error {
				for _, key := range tc.filled {
					if len(secret.Data[key]) == 0 {
						return fmt.Errorf("%s is not filled", key)
					}
				}
				return nil
			})
			c.fence(t, m)
			c.untouched(t, after)
			c.once(t, told)
			want := slices.Sorted(slices.Values(slices.Concat(tc.stays, tc.filled)))
			if diff := cmp.Diff(want, slices.Sorted(maps.Keys(after.Data)), equateEmpty()); diff != "" {
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

func named(account string) change {
	return func(s *corev1.Secret) { s.Annotations[corev1.ServiceAccountNameKey] = account }
}

// untouched checks that nobody has written a Secret.
func (c *controlPlane) untouched(t *testing.T, before *corev1.Secret) {
	t.Helper()
	now := c.getSecret(t, before.Namespace, before.Name)
	if now.UID != before.UID || now.ResourceVersion != before.ResourceVersion {
		t.Errorf("secret %s/%s has changed:\n%s", before.Namespace, before.Name, cmp.Diff(before, now))
	}
}

// TestUniqueClaims covers the claims that bring no revoked token back.
func TestUniqueClaims(t *testing.T) {
	c := sharedControlPlane(t)
	c.manage(t, "--token-secrets=manual", "--legacy-token-claims=unique", "--logging-format=json")
	namespace := c.namespace(t)
	account := c.createAccount(t, namespace, "someone")
	var tokens [][]byte
	for range 2 {
		c.createSecret(t, tokenSecret(namespace, "mine", "someone"))
		tokens = append(tokens, c.awaitFilled(t, namespace, "mine").Data["token"])
		c.deleteSecret(t, namespace, "mine")
	}
	c.createSecret(t, tokenSecret(namespace, "mine", "someone"))
	secret := c.awaitFilled(t, namespace, "mine")
	c.accepted(t, secret, account)
	for _, former := range tokens {
		c.refused(t, former)
	}
	_, claims := decode(t, secret.Data["token"])
	for _, claim := range []string{"iat", "jti"} {
		if claims[claim] == nil {
			t.Errorf("the token has no claim %s", claim)
		}
		delete(claims, claim)
	}
	if diff := cmp.Diff(legacyClaims(account, "mine"), claims); diff != "" {
		t.Errorf("the other claims (-want +got):\n%s", diff)
	}
}
