// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package podscan

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/internal/testutil"
)

func TestFind(t *testing.T) {
	t.Parallel()
	const configuration, list, account, namespace = "get mutatingwebhookconfigurations", "list pods", "get serviceaccounts", "get namespaces"
	cases := map[string]struct {
		reason    string
		objects   []runtime.Object
		namespace string
		missed    []string
		uncertain []string
		asked     []string
	}{
		"None": {asked: []string{list}},
		"Complete": {
			reason:  "who lacks nothing is not asked about",
			objects: []runtime.Object{newPod(of("someone"), mounted), newPod(named("shop", "b"), of("someone"), automount(false))},
			asked:   []string{list},
		},
		"OneAccountForAll": {
			objects: []runtime.Object{
				accountNamed("shop", "someone"), newPod(named("shop", "a"), of("someone")), newPod(named("shop", "b"), of("someone")),
			},
			missed: []string{"shop/a", "shop/b"},
			asked:  []string{list, account},
		},
		"MissingAccountIsAskedForOnce": {
			objects: []runtime.Object{newPod(named("shop", "a")), newPod(named("shop", "b"))},
			missed:  []string{"shop/a", "shop/b"},
			asked:   []string{list, account},
		},
		"Pages": {
			objects: []runtime.Object{
				accountNamed("shop", "default"), newPod(named("shop", "a")), newPod(named("shop", "b")),
				newPod(named("shop", "c")), newPod(named("shop", "d")), newPod(named("shop", "e")),
			},
			missed: []string{"shop/a", "shop/b", "shop/c", "shop/d", "shop/e"},
			asked:  []string{list, account, list, list},
		},
		"Uncertain": {
			objects: []runtime.Object{
				accountNamed("shop", "someone", changed(1e9, `{"f:automountServiceAccountToken":{}}`)),
				newPod(named("shop", "a"), of("someone")), newPod(named("shop", "b"), of("someone"), automount(true)),
			},
			missed: []string{"shop/b"}, uncertain: []string{"shop/a"},
			asked: []string{list, account},
		},
		"OneNamespace": {
			objects:   []runtime.Object{newPod(named("bank", "a")), newPod(named("shop", "b"))},
			namespace: "shop",
			missed:    []string{"shop/b"},
			asked:     []string{list, account},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(tc.objects...)
			w.pageSize = 2
			found, err := w.finder().Find(t.Context(), tc.namespace)
			testutil.Must(t, err)
			got := [][]string{names(found.Missed), names(found.Uncertain), w.asked()}
			testutil.Check(t, tc.reason+"\nmissed, uncertain and requests", [][]string{tc.missed, tc.uncertain, tc.asked}, got,
				cmpopts.EquateEmpty())
		})
	}
}

// A scan that could not see everything must not say that there is nothing.
func TestFindFails(t *testing.T) {
	t.Parallel()
	for request, want := range map[string]string{
		"list pods":           "list Pods: boom",
		"get serviceaccounts": "read service account shop/default: boom",
	} {
		t.Run(request, func(t *testing.T) {
			w := newWorld(newPod())
			verb, resource, _ := strings.Cut(request, " ")
			w.PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, errors.New("boom")
			})
			found, err := w.finder().Find(t.Context(), "")
			if err == nil || err.Error() != want {
				t.Errorf("got %v and error %v, want %q", found, err, want)
			}
		})
	}
}

// In a large cluster the pages of one list outlive what kube-apiserver keeps of it. A scan that
// began again would never end.
func TestFindGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(accountNamed("shop", "default"), newPod(named("shop", "a")), newPod(named("shop", "b")), newPod(named("shop", "c")))
	w.pageSize = 1
	lists := 0
	w.PrependReactor("list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		lists++
		if lists != 2 {
			return false, nil, nil
		}
		expired := apierrors.NewResourceExpired("too old")
		expired.ErrStatus.Continue = action.(clienttesting.ListActionImpl).ListOptions.Continue
		return true, nil, expired
	})
	found, err := w.finder().Find(t.Context(), "")
	testutil.Must(t, err)
	if diff := cmp.Diff([]string{"shop/a", "shop/b", "shop/c"}, names(found.Missed)); diff != "" || found.Looked != 3 {
		t.Errorf("of %d Pods, missed (-want +got):\n%s", found.Looked, diff)
	}
}

// What is asked of kube-apiserver: pages of one list, without Pods that have ended.
func TestFindOptions(t *testing.T) {
	t.Parallel()
	w := newWorld()
	if _, err := w.finder().Find(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	for _, action := range w.Actions() {
		list, ok := action.(clienttesting.ListActionImpl)
		if !ok {
			continue
		}
		got := fmt.Sprint(list.ListOptions.Limit, list.ListOptions.FieldSelector, list.ListOptions.ResourceVersion)
		if want := fmt.Sprint(500, "status.phase!="+string(corev1.PodSucceeded)+",status.phase!="+string(corev1.PodFailed), ""); got != want {
			t.Errorf("the list is of %s, want %s", got, want)
		}
	}
}
