// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokencontroller

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/test/integration/testcluster"
)

// TestRefusals covers wrong token Secrets and the Events about them.
func TestRefusals(t *testing.T) {
	c := testcluster.Shared(t)
	m := c.Manage(t, "--token-secrets=manual")
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
