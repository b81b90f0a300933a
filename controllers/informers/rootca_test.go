// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package informers

import (
	"crypto/sha256"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/internal/testutil"
)

func TestObserveRootCA(t *testing.T) {
	t.Parallel()
	meta := func() metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Namespace: "shop", Name: "kube-root-ca.crt", UID: "uid", ResourceVersion: "7",
			Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}, Finalizers: []string{"e/f"},
		}
	}
	described := func(text string) metav1.ObjectMeta {
		m := meta()
		m.Annotations["kubernetes.io/description"] = text
		return m
	}
	managed := meta()
	managed.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "somebody"}}
	hash := sha256.Sum256([]byte("bundle"))
	bundle := map[string]string{"ca.crt": "bundle"}
	cases := map[string]struct {
		reason string
		given  corev1.ConfigMap
		want   RootCA
	}{
		"Right": {
			given: corev1.ConfigMap{ObjectMeta: described(RootCADescription), Data: bundle},
			want:  RootCA{ObjectMeta: meta(), Has: true, Hash: hash, Described: true},
		},
		"OtherDescription": {
			reason: "it is kept, so that it is sent back where nothing else is wrong",
			given:  corev1.ConfigMap{ObjectMeta: described("mine"), Data: bundle},
			want:   RootCA{ObjectMeta: described("mine"), Has: true, Hash: hash},
		},
		"ManagedFields": {
			reason: "nobody reads them", given: corev1.ConfigMap{ObjectMeta: managed, Data: bundle},
			want: RootCA{ObjectMeta: meta(), Has: true, Hash: hash},
		},
		"NoData": {given: corev1.ConfigMap{ObjectMeta: meta()}, want: RootCA{ObjectMeta: meta()}},
		"EmptyBundle": {
			reason: "is none", given: corev1.ConfigMap{ObjectMeta: meta(), Data: map[string]string{"ca.crt": ""}},
			want: RootCA{ObjectMeta: meta()},
		},
		"OtherKey": {
			given: corev1.ConfigMap{ObjectMeta: meta(), Data: map[string]string{"x": "y"}}, want: RootCA{ObjectMeta: meta(), Extra: true},
		},
		"MoreKeys": {
			given: corev1.ConfigMap{ObjectMeta: meta(), Data: map[string]string{"ca.crt": "bundle", "x": ""}},
			want:  RootCA{ObjectMeta: meta(), Has: true, Hash: hash, Extra: true},
		},
		"BinaryKey": {
			given: corev1.ConfigMap{ObjectMeta: meta(), Data: bundle, BinaryData: map[string][]byte{"x": nil}},
			want:  RootCA{ObjectMeta: meta(), Has: true, Hash: hash, Extra: true},
		},
		"BinaryBundle": {
			reason: "clients read data", given: corev1.ConfigMap{ObjectMeta: meta(), BinaryData: map[string][]byte{"ca.crt": []byte("bundle")}},
			want: RootCA{ObjectMeta: meta(), Extra: true},
		},
		"Immutable": {
			given: corev1.ConfigMap{ObjectMeta: meta(), Immutable: new(true)}, want: RootCA{ObjectMeta: meta(), Immutable: true},
		},
		"Mutable": {given: corev1.ConfigMap{ObjectMeta: meta(), Immutable: new(false)}, want: RootCA{ObjectMeta: meta()}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			before := tc.given.DeepCopy()
			got, err := observeRootCA(&tc.given)
			testutil.Must(t, err)
			testutil.Check(t, tc.reason, &tc.want, got)
			testutil.Check(t, "what was given", before, &tc.given)
			if again, err := observeRootCA(got); err != nil || again != got {
				t.Errorf("observed again: %v, %v", again, err)
			}
		})
	}
}

func TestRootCALister(t *testing.T) {
	t.Parallel()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	mine := ObserveRootCA(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "kube-root-ca.crt", UID: "uid"}})
	testutil.Must(t, indexer.Add(mine))
	lister := RootCALister{indexer}
	if got := lister.Get("shop"); got != mine {
		t.Errorf("got %v, want that of the namespace", got)
	}
	if got := lister.Get("other"); got != nil {
		t.Errorf("got %v of a namespace that has none", got)
	}
	want := &corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "kube-root-ca.crt", UID: "uid"}
	testutil.Check(t, "reference", want, mine.Reference())
}
