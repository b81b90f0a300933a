// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/controllers/informers"
	"sa-controller-manager/internal/testutil"
)

// right is the ConfigMap as it is to be, with changes made to it.
func right(namespace string, bundle *Bundle, changes ...func(*corev1.ConfigMap)) *corev1.ConfigMap {
	configMap := render(metav1.ObjectMeta{Namespace: namespace, Name: "kube-root-ca.crt"}, bundle)
	for _, change := range changes {
		change(configMap)
	}
	return configMap
}

func immutable(c *corev1.ConfigMap)   { c.Immutable = new(true) }
func terminating(c *corev1.ConfigMap) { c.DeletionTimestamp = new(metav1.NewTime(time.Unix(1, 0))) }
func undescribed(c *corev1.ConfigMap) { c.Annotations = nil }
func emptied(c *corev1.ConfigMap)     { c.Data = nil }

func data(key, value string) func(*corev1.ConfigMap) {
	return func(c *corev1.ConfigMap) { c.Data[key] = value }
}

func TestPlanConfigMap(t *testing.T) {
	t.Parallel()
	a := newAuthorities(t, "AB")
	bundle, previous := a.bundle(t, "A"), a.bundle(t, "B")
	mine := func(changes ...func(*corev1.ConfigMap)) *corev1.ConfigMap { return right("shop", bundle, changes...) }
	cases := map[string]struct {
		reason string
		gone   bool // the namespace is not Active
		found  *corev1.ConfigMap
		bundle *Bundle
		want   action
	}{
		"Missing":           {bundle: bundle, want: create},
		"MissingAndGoing":   {reason: "kube-apiserver would refuse it", gone: true, bundle: bundle},
		"Right":             {found: mine(), bundle: bundle},
		"Previous":          {found: right("shop", previous), bundle: bundle, want: update},
		"PreviousAndGoing":  {reason: "its Pods still run", gone: true, found: right("shop", previous), bundle: bundle, want: update},
		"Edited":            {found: mine(data("ca.crt", "hello")), bundle: bundle, want: update},
		"Emptied":           {found: mine(emptied), bundle: bundle, want: update},
		"ExtraKey":          {found: mine(data("more", "")), bundle: bundle, want: update},
		"Undescribed":       {found: mine(undescribed), bundle: bundle, want: update},
		"Immutable":         {reason: "it is what it is to be", found: mine(immutable), bundle: bundle},
		"ImmutableAndWrong": {found: mine(immutable, data("ca.crt", "hello")), bundle: bundle, want: refuse},
		"Terminating":       {found: mine(terminating, data("ca.crt", "hello")), bundle: bundle},
		"Nothing":           {reason: "there is no root CA"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var found *informers.RootCA
			if tc.found != nil {
				found = informers.ObserveRootCA(tc.found)
			}
			testutil.Check(t, tc.reason, tc.want, planConfigMap(!tc.gone, found, tc.bundle))
		})
	}
}

func TestRender(t *testing.T) {
	t.Parallel()
	a := newAuthorities(t, "A")
	meta := metav1.ObjectMeta{
		Namespace: "shop", Name: "kube-root-ca.crt", UID: "uid", ResourceVersion: "7",
		Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}, Finalizers: []string{"e/f"},
	}
	got := render(meta, a.bundle(t, "A"))
	want := &corev1.ConfigMap{ObjectMeta: *meta.DeepCopy(), Data: map[string]string{"ca.crt": a.pem("A")}}
	want.Annotations["kubernetes.io/description"] = "Contains a CA bundle that can be used to verify the kube-apiserver " +
		"when using internal endpoints such as the " +
		"internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters."
	testutil.Check(t, "ConfigMap", want, got)
	testutil.Check(t, "annotations of what was given", map[string]string{"c": "d"}, meta.Annotations)
}
