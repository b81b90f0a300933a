// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"sa-controller-manager/internal/testutil"
)

// A CA may leave the Secret while a replica that does not register, and so cannot learn what
// callers know, still serves with a leaf of it. No caller meets a leaf that it cannot verify.
func TestFollowerIsNeverRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		harm   func(t *testing.T, client *fake.Clientset, second int)
	}{
		"deleted twice": {
			reason: "with the second rollover the first CA is no longer the previous one",
			harm: func(t *testing.T, client *fake.Clientset, second int) {
				if second != 10 && second != 70 {
					return
				}
				testutil.Must(t, client.CoreV1().Secrets(SecretNamespace).Delete(t.Context(), SecretName, metav1.DeleteOptions{}))
			},
		},
		"replaced by hand": {
			reason: "the place of the previous CA is taken",
			harm: func(t *testing.T, client *fake.Clientset, second int) {
				if second == 10 {
					putOther(t, client)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first, secret := secretWithFormer(t)
				client := fake.NewClientset(secret)
				registered := &configurations{}
				leader, follower := run(t, ManagedConfig{Client: client}), run(t, ManagedConfig{Client: client})
				registered.follow(leader)
				for second := range 12 * 60 {
					tc.harm(t, client, second)
					pause(time.Second)
					for who, m := range map[string]*Managed{"leader": leader, "follower": follower} {
						if err := registered.accept(m); err != nil {
							t.Fatalf("%s: second %d: the %s is refused: %v", tc.reason, second, who, err)
						}
					}
				}
				active := read(secretOf(t, client)).active
				for who, m := range map[string]*Managed{"leader": leader, "follower": follower} {
					testutil.CheckError(t, "the leaf of the "+who+" is not of the active CA in the end", "", accepts(m, certPEM(active.cert), "127.0.0.1"))
				}
				if bytes.Contains(leader.CABundle(), certPEM(first.cert)) {
					t.Error("the caBundle still has a CA that nobody uses")
				}
			})
		})
	}
}

// secretWithFormer is the Secret some days after a rollover, with its active CA.
func secretWithFormer(t *testing.T) (*authority, *corev1.Secret) {
	t.Helper()
	var made [2]*authority
	for i := range made {
		var err error
		if made[i], err = newAuthority(time.Now().Add(time.Duration(i-2)*day), 365*day); err != nil {
			t.Fatal(err)
		}
	}
	previous, active := made[0], made[1]
	secret, err := state{active: active, previous: previous.cert}.writeInto(emptySecret())
	testutil.Must(t, err)
	return active, secret
}
