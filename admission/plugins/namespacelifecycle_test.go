// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	corev1listers "k8s.io/client-go/listers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/admission"
	"sa-controller-manager/admission/plugins"
	"sa-controller-manager/internal/testutil"
)

func namespace(name string, phase corev1.NamespacePhase) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NamespaceStatus{Phase: phase}}
}

// lifecycle is the plugin over a cache and an API that need not agree.
func lifecycle(t *testing.T, cached, live []*corev1.Namespace) (admission.Plugin, *fake.Clientset) {
	t.Helper()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	for _, n := range cached {
		testutil.Must(t, indexer.Add(n))
	}
	var objects []runtime.Object
	for _, n := range live {
		objects = append(objects, n)
	}
	client := fake.NewClientset(objects...)
	synced := make(chan struct{})
	close(synced)
	plugin, err := plugins.NewNamespaceLifecycle(plugins.NamespaceLifecycleDeps{
		Lister: corev1listers.NewNamespaceLister(indexer), Synced: synced, Client: client.CoreV1(),
	})(nil)
	testutil.Must(t, err)
	return plugin, client
}

func ofNamespace(name string) func(*admission.Request) {
	return func(r *admission.Request) {
		r.Kind.Kind, r.Resource.Resource = "Namespace", "namespaces"
		r.Name, r.Namespace = name, name
	}
}

func TestNamespaceLifecycle(t *testing.T) {
	t.Parallel()
	active := []*corev1.Namespace{namespace("ns", corev1.NamespaceActive)}
	ending := []*corev1.Namespace{namespace("ns", corev1.NamespaceTerminating)}
	const ended = `pods "web" is forbidden: unable to create new content in namespace ns because it is being terminated`
	cases := map[string]struct {
		reason       string
		cached, live []*corev1.Namespace
		operation    admission.Operation
		change       func(*admission.Request)
		want         string
		gets         int
	}{
		"active":                  {reason: "the cache is enough", cached: active, live: active, operation: admission.Create},
		"terminating":             {reason: "nothing new", cached: ending, live: ending, operation: admission.Create, want: ended},
		"delete in no namespace":  {reason: "no lookup at all", operation: admission.Delete},
		"not in the cache yet":    {reason: "asked for, in either phase", live: active, operation: admission.Create, gets: 2},
		"terminating, not cached": {reason: "asked for", live: ending, operation: admission.Create, want: ended, gets: 1},
		"no namespace":            {reason: "not found", operation: admission.Create, want: `namespaces "ns" not found`, gets: 1},
		"cluster-scoped": {
			reason: "has no namespace", operation: admission.Create, change: func(r *admission.Request) { r.Namespace = "" },
		},
		"access review": {reason: "must not tell what exists", operation: admission.Create, change: func(r *admission.Request) {
			r.Resource.Group, r.Resource.Resource = "authorization.k8s.io", "localsubjectaccessreviews"
		}},
		"create a namespace": {reason: "allowed", operation: admission.Create, change: ofNamespace("default")},
		"delete default": {
			reason: "immortal", operation: admission.Delete, change: ofNamespace("default"),
			want: `namespaces "default" is forbidden: this namespace may not be deleted`,
		},
		"delete kube-system": {
			reason: "immortal", operation: admission.Delete, change: ofNamespace("kube-system"),
			want: `namespaces "kube-system" is forbidden: this namespace may not be deleted`,
		},
		"delete kube-public": {
			reason: "immortal", operation: admission.Delete, change: ofNamespace("kube-public"),
			want: `namespaces "kube-public" is forbidden: this namespace may not be deleted`,
		},
		"namespace of others": {
			reason: "another group's kind is an object like any other", live: active, operation: admission.Create,
			change: func(r *admission.Request) { r.Kind.Kind, r.Kind.Group = "Namespace", "example.com" }, gets: 2,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			plugin, client := lifecycle(t, tc.cached, tc.live)
			err := decide(t, plugin, request(tc.operation, tc.change))
			testutil.Check(t, tc.reason, tc.want, text(err))
			testutil.Check(t, tc.reason+": requests", tc.gets, len(client.Actions()))
			if tc.want == ended && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
				t.Errorf("%s: the cause is missing, which controllers look for", tc.reason)
			}
		})
	}
}

// A Pod is refused for its namespace before anybody looks for its account there.
func TestNamespaceLifecycleComesFirst(t *testing.T) {
	t.Parallel()
	plugin, _ := lifecycle(t, nil, nil)
	alone := admission.Chain{{Name: plugins.NamespaceLifecycle, Plugin: plugin}}
	err := alone.Admit(t.Context(), request(admission.Create, nil), &admission.Response{})
	testutil.Check(t, "mutation", `namespaces "ns" not found`, text(err))
	// What is there may change, in whatever namespace: updates are none of the plugin's business.
	everything := []admission.Rule{
		{Group: "*", Resource: "*", SubResource: "*", Operations: []admission.Operation{admission.Create, admission.Delete}},
	}
	got := [][]admission.Rule{alone.MutatingRules(), alone.ValidatingRules()}
	want := [][]admission.Rule{{{Resource: "pods", Operations: []admission.Operation{admission.Create}}}, everything}
	testutil.Check(t, "mutating and validating rules", want, got)
}

func TestNamespaceLifecycleDistrustsItsCacheAfterADeletion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		plugin, client := lifecycle(t,
			[]*corev1.Namespace{namespace("ns", corev1.NamespaceActive)},
			[]*corev1.Namespace{namespace("ns", corev1.NamespaceTerminating)})
		create := func() string {
			if decide(t, plugin, request(admission.Create, nil)) != nil {
				return "refused"
			}
			return "allowed"
		}
		dryRun := request(admission.Delete, ofNamespace("ns"))
		dryRun.DryRun = true

		got := []string{create()}
		_ = decide(t, plugin, dryRun)
		got = append(got, create())
		_ = decide(t, plugin, request(admission.Delete, ofNamespace("ns")))
		got = append(got, create())
		time.Sleep(29 * time.Second)
		got = append(got, create())
		time.Sleep(2 * time.Second)
		got = append(got, create())

		testutil.Check(t, "before, after a dry run, after the deletion, 29 s and 31 s later",
			[]string{"allowed", "allowed", "refused", "refused", "allowed"}, got)
		// The two Pods that meet distrust are refused by mutation, so neither is validated.
		testutil.Check(t, "requests", 2, len(client.Actions()))
	})
}

func TestNamespaceLifecycleRefusesWhenItCannotKnow(t *testing.T) {
	t.Parallel()
	plugin, client := lifecycle(t, nil, nil)
	client.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("boom")
	})
	testutil.Check(t, "result", "Internal error occurred: boom", text(decide(t, plugin, request(admission.Create, nil))))
}
