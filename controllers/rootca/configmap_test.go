// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"sa-controller-manager/controllers/view"
)

// right is the ConfigMap as it is to be, with changes made to it.
func right(namespace string, bundle *Bundle, changes ...func(*corev1.ConfigMap)) *corev1.ConfigMap {
	configMap := render(metav1.ObjectMeta{Namespace: namespace, Name: "kube-root-ca.crt"}, bundle)
	for _, change := range changes {
		change(configMap)
	}
	return configMap
}

func immutable(c *corev1.ConfigMap)   { c.Immutable = ptr.To(true) }
func terminating(c *corev1.ConfigMap) { c.DeletionTimestamp = ptr.To(metav1.NewTime(time.Unix(1, 0))) }
func undescribed(c *corev1.ConfigMap) { c.Annotations = nil }
func emptied(c *corev1.ConfigMap)     { c.Data = nil }

func data(key, value string) func(*corev1.ConfigMap) {
	return func(c *corev1.ConfigMap) { c.Data[key] = value }
}

func TestPlanConfigMap(t *testing.T) {
	t.Parallel()
	a := newAuthorities(t, "AB")
	bundle, former := a.bundle(t, "A"), a.bundle(t, "B")
	make := func(changes ...func(*corev1.ConfigMap)) *corev1.ConfigMap { return right("shop", bundle, changes...) }
	binary := func(c *corev1.ConfigMap) { c.BinaryData = map[string][]byte{"x": {1}} }
	cases := map[string]struct {
		reason string
		gone   bool // the namespace is not Active
		found  *corev1.ConfigMap
		bundle *Bundle
		want   action
	}{
		"Missing":            {bundle: bundle, want: create},
		"MissingAndGoing":    {reason: "kube-apiserver would refuse it", gone: true, bundle: bundle},
		"Right":              {found: make(), bundle: bundle},
		"Former":             {found: right("shop", former), bundle: bundle, want: update},
		"FormerAndGoing":     {reason: "its Pods still run", gone: true, found: right("shop", former), bundle: bundle, want: update},
		"Edited":             {found: make(data("ca.crt", "hello")), bundle: bundle, want: update},
		"Emptied":            {found: make(emptied), bundle: bundle, want: update},
		"EmptyBundle":        {found: make(data("ca.crt", "")), bundle: bundle, want: update},
		"ExtraKey":           {found: make(data("more", "")), bundle: bundle, want: update},
		"ExtraBinaryKey":     {found: make(binary), bundle: bundle, want: update},
		"Undescribed":        {found: make(undescribed), bundle: bundle, want: update},
		"OtherDescription":   {found: make(func(c *corev1.ConfigMap) { c.Annotations["kubernetes.io/description"] = "mine" }), bundle: bundle, want: update},
		"MoreAnnotations":    {reason: "of others", found: make(func(c *corev1.ConfigMap) { c.Annotations["x"] = "y" }), bundle: bundle},
		"Immutable":          {reason: "it is what it is to be", found: make(immutable), bundle: bundle},
		"ImmutableAndWrong":  {found: make(immutable, data("ca.crt", "hello")), bundle: bundle, want: refuse},
		"Terminating":        {found: make(terminating, data("ca.crt", "hello")), bundle: bundle},
		"Nothing":            {reason: "there is no root CA"},
		"NothingToPut":       {reason: "there is no root CA", found: make()},
		"ProvisionalMissing": {bundle: bundle.Provisional(), want: create},
		"ProvisionalEmpty":   {found: make(emptied), bundle: bundle.Provisional(), want: update},
		"ProvisionalOther":   {reason: "it may hold what must stay", found: right("shop", former), bundle: bundle.Provisional()},
		"ProvisionalExtra":   {reason: "an update would replace the bundle too", found: make(data("more", ""), undescribed), bundle: bundle.Provisional()},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var found *view.RootCA
			if tc.found != nil {
				found = view.ObserveRootCA(tc.found)
			}
			check(t, tc.reason, tc.want, planConfigMap(!tc.gone, found, tc.bundle))
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
	want.Annotations["kubernetes.io/description"] = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the " +
		"internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters."
	check(t, "ConfigMap", want, got)
	check(t, "annotations of what was given", map[string]string{"c": "d"}, meta.Annotations)
}
