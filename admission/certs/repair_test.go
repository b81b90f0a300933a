// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/internal/events"
	"sa-controller-manager/internal/pki"
	"sa-controller-manager/internal/stateobject"
	"sa-controller-manager/internal/testutil"
)

func remove(t *testing.T, client *fake.Clientset) {
	t.Helper()
	testutil.Must(t, client.CoreV1().Secrets(SecretNamespace).Delete(t.Context(), SecretName, metav1.DeleteOptions{}))
}

func overwrite(key, value string) func(*testing.T, *fake.Clientset) {
	return func(t *testing.T, client *fake.Clientset) {
		t.Helper()
		_, err := client.CoreV1().Secrets(SecretNamespace).Update(t.Context(), with(secretOf(t, client), key, value), metav1.UpdateOptions{})
		testutil.Must(t, err)
	}
}

func TestManagedRepairs(t *testing.T) {
	for name, harm := range map[string]func(*testing.T, *fake.Clientset){
		"deleted":         remove,
		"version damaged": overwrite(stateobject.VersionKey, "nonsense"),
		"key damaged":     overwrite(keyActiveKey, "rubbish"),
		"CA damaged":      overwrite(keyPreviousCert, "rubbish"), // that of leaves before
		"damaged and immutable, then deleted": func(t *testing.T, client *fake.Clientset) {
			client.PrependReactor("update", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Secret").GroupKind(), SecretName, nil)
			})
			damaged := with(secretOf(t, client), keyActiveKey, "rubbish")
			damaged.Immutable = new(true)
			testutil.Must(t, client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("secrets"), damaged, SecretNamespace))
			pause(time.Minute)
			remove(t, client)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				previous, active := madeAt(t, time.Now().Add(-2*day), 365*day), madeAt(t, time.Now().Add(-day), 365*day)
				client := fake.NewClientset(secretWith(t, state{active: active, previous: previous.cert}))
				sink := &recorded{}
				m := run(t, ManagedConfig{Client: client, Recorder: events.NewRecorderTo(sink)})
				before, data := m.current.Load().serving, secretOf(t, client).Data
				var empty bool
				m.OnChange(func() { empty = empty || len(m.CABundle()) == 0 })
				harm(t, client)
				pause(time.Second)
				for _, key := range []string{keyActiveKey, keyPreviousCert} {
					back := bytes.Equal(secretOf(t, client).Data[key], data[key])
					testutil.Check(t, "the Secret has got back its "+key, true, back)
				}
				if m.current.Load().serving != before {
					t.Error("the leaf was replaced")
				}
				if empty || !bytes.Contains(m.CABundle(), pki.CertPEM(active.cert)) || !bytes.Contains(m.CABundle(), pki.CertPEM(previous.cert)) {
					t.Error("the caBundle lost a CA")
				}
				testutil.Check(t, "Events", []string{SecretName + " ServingCARepaired"}, sink.all)
			})
		})
	}
}

// recorded is a sink that keeps of an Event which object it regards and its reason.
type recorded struct{ all []string }

func (r *recorded) Event(regarding runtime.Object, _, reason, _ string) {
	r.all = append(r.all, regarding.(*corev1.ObjectReference).Name+" "+reason)
}

// Somebody who undoes every write does not make us flood the apiserver.
func TestManagedDoesNotFight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		m := run(t, ManagedConfig{Client: client})
		var writes int
		client.PrependReactor("create", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
			writes++
			time.AfterFunc(time.Millisecond, func() {
				_ = client.CoreV1().Secrets(SecretNamespace).Delete(context.Background(), SecretName, metav1.DeleteOptions{})
			})
			return false, nil, nil
		})
		_ = client.CoreV1().Secrets(SecretNamespace).Delete(t.Context(), SecretName, metav1.DeleteOptions{})
		const during = 20 * time.Second
		pause(during)
		const want = writeBurst + int(during/writeInterval)
		if writes < writeBurst || writes > want+1 {
			t.Errorf("%d writes in %s of being deleted, want between %d and %d", writes, during, writeBurst, want+1)
		}
		testutil.CheckError(t, "not ready", "", m.Ready())
	})
}
