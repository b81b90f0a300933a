// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecrets

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/test/integration/testcluster"
)

// TestManualMode covers what is done with token Secrets that users make.
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
		c.AwaitProcessed(t, m)
		if now := c.GetAccount(t, namespace, "someone"); len(now.Secrets) > 0 {
			t.Errorf("the account references %v, want nothing", testcluster.ReferenceNames(now))
		}
		if versions := c.ResourceVersions(t, namespace); len(versions) != 3 { // with account default
			t.Errorf("something was made besides: %v", versions)
		}
	})
	t.Run("WhatUsersPutThereStays", func(t *testing.T) {
		t.Parallel()
		namespace := c.Namespace(t)
		c.CreateAccount(t, namespace, "someone")
		c.CreateSecret(t, testcluster.TokenSecret(namespace, "mine", "someone",
			testcluster.WithData("extra", "kept"), testcluster.WithLabel("test/mine", "kept"), testcluster.WithFinalizer,
			testcluster.WithAnnotation("test/mine", "kept")))
		secret := c.AwaitFilled(t, namespace, "mine")
		if got := string(secret.Data["extra"]) + secret.Labels["test/mine"] + secret.Annotations["test/mine"]; got != "keptkeptkept" {
			t.Errorf("something of the user's is gone: %q", got)
		}
	})
	t.Run("OtherTypesAreIgnored", func(t *testing.T) {
		t.Parallel()
		namespace := c.Namespace(t)
		c.CreateAccount(t, namespace, "someone")
		secret := c.CreateSecret(t,
			testcluster.TokenSecret(namespace, "mine", "someone", func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque }))
		c.AwaitProcessed(t, m)
		untouched(t, c, secret)
	})
}

// TestRefusals covers wrong token Secrets and the Events about them.
func TestRefusals(t *testing.T) {
	c := testcluster.Shared(t)
	m := c.Manage(t, "--token-secrets=manual")
	neighbours := c.Namespace(t)
	c.CreateAccount(t, neighbours, "neighbour")
	c.CreateSecret(t, testcluster.TokenSecret(neighbours, "theirs", "neighbour"))
	theirs := string(c.AwaitFilled(t, neighbours, "theirs").Data["token"])
	cases := map[string]struct {
		reason string
		change testcluster.SecretOption
		event  string // reason of the Event
		note   string // part of its note
		stays  string // a key
		filled []string
	}{
		"Immutable": {
			reason: "one Event and no loop", change: testcluster.Immutable,
			event: "ImmutableTokenSecret", note: "without immutable: true",
		},
		"NotAToken": {
			reason: "a non-empty token is never overwritten", change: testcluster.WithData("token", "secret-of-a-user"),
			event: "TokenSecretMismatch", note: "not a service account token", stays: "token", filled: []string{"ca.crt", "namespace"},
		},
		"TokenOfAnotherAccount": {
			reason: "it was copied from another Secret", change: testcluster.WithData("token", theirs),
			event: "TokenSecretMismatch", note: "not for this Secret", stays: "token", filled: []string{"ca.crt", "namespace"},
		},
		"WrongNamespaceKey": {
			change: testcluster.WithData("namespace", "kube-system"),
			event:  "TokenSecretMismatch", note: "data.namespace", stays: "namespace", filled: []string{"ca.crt", "token"},
		},
		"NameWithSlash": {
			reason: "it would lead into another path of the API",
			change: testcluster.WithAnnotation(corev1.ServiceAccountNameKey, "../../"+neighbours+"/neighbour"),
			event:  "InvalidServiceAccountName",
		},
		"NameTooLong": {
			change: testcluster.WithAnnotation(corev1.ServiceAccountNameKey, strings.Repeat("a", 200<<10)),
			event:  "InvalidServiceAccountName",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := c.Namespace(t)
			c.CreateAccount(t, namespace, "someone")
			before := c.CreateSecret(t, testcluster.TokenSecret(namespace, "mine", "someone", tc.change))
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
			c.ExpectOne(t, event)
			if got, want := len(after.Data), len(before.Data)+len(tc.filled); got != want {
				t.Errorf("%s: %d keys, want %d", tc.reason, got, want)
			}
			if !bytes.Equal(after.Data[tc.stays], before.Data[tc.stays]) {
				t.Errorf("%s: %s was overwritten", tc.reason, tc.stays)
			}
		})
	}
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
