// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package podscan

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/admission/serviceaccount"
	"sa-controller-manager/internal/testutil"
)

func TestFind(t *testing.T) {
	t.Parallel()
	const list, both = "list pods", "list pods, get serviceaccounts"
	cases := map[string]struct {
		reason            string
		objects           []runtime.Object
		namespace         string
		missed, uncertain string
		asked             string
	}{
		"Complete": {
			reason:  "a Pod that lacks nothing takes no request",
			objects: []runtime.Object{newPod(of("someone"), mounted), newPod(named("b"), of("someone"), automount(false))}, asked: list,
		},
		"OneAccountForAll": {
			objects: []runtime.Object{newAccount(), newPod(named("a"), of("someone")), newPod(named("b"), of("someone"))},
			missed:  "shop/a, shop/b", asked: both,
		},
		"MissingAccountIsAskedForOnce": {
			objects: []runtime.Object{newPod(named("a")), newPod(named("b"))}, missed: "shop/a, shop/b", asked: both,
		},
		"Uncertain": {
			objects: []runtime.Object{
				newAccount(changed(1e9, `{"f:automountServiceAccountToken":{}}`)),
				newPod(named("a"), of("someone")), newPod(named("b"), of("someone"), automount(true)),
			},
			missed: "shop/b", uncertain: "shop/a", asked: both,
		},
		"OneNamespace": {
			objects:   []runtime.Object{newPod(func(pod *corev1.Pod) { pod.Namespace = "bank" }), newPod(named("b"))},
			namespace: "shop", missed: "shop/b", asked: both,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(tc.objects...)
			found, err := Finder{client, serviceaccount.DefaultConfig()}.Find(t.Context(), tc.namespace)
			testutil.Must(t, err)
			var asked []string
			for _, action := range client.Actions() {
				asked = append(asked, action.GetVerb()+" "+action.GetResource().Resource)
			}
			testutil.Check(t, tc.reason+": missed", tc.missed, names(found.Missed))
			testutil.Check(t, tc.reason+": uncertain", tc.uncertain, names(found.Uncertain))
			testutil.Check(t, tc.reason+": requests", tc.asked, strings.Join(asked, ", "))
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
			client := fake.NewClientset(newPod())
			verb, resource, _ := strings.Cut(request, " ")
			client.PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, errors.New("boom")
			})
			_, err := Finder{client, serviceaccount.DefaultConfig()}.Find(t.Context(), "")
			testutil.Check(t, request, want, fmt.Sprint(err))
		})
	}
}

// names returns them in order, which the fake clientset does not keep.
func names(pods []Pod) string {
	var all []string
	for i := range pods {
		all = append(all, pods[i].String())
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}
