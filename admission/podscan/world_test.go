// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package podscan

import (
	"slices"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/admission/serviceaccount"
	"sa-controller-manager/internal/paging"
)

// world is an apiserver that pages lists of Pods and writes requests down.
type world struct {
	*fake.Clientset

	pageSize int

	mu       sync.Mutex
	requests []string
	down     error // what lists of Pods fail with
}

func newWorld(objects ...runtime.Object) *world {
	w := &world{Clientset: fake.NewClientset(objects...), pageSize: paging.Size}
	w.PrependReactor("list", "pods", w.page)
	w.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.requests = append(w.requests, action.GetVerb()+" "+action.GetResource().Resource)
		return false, nil, nil
	})
	return w
}

func (w *world) finder() Finder { return Finder{Client: w, Config: serviceaccount.DefaultConfig()} }

// page answers a list with limit and continue.
func (w *world) page(action clienttesting.Action) (bool, runtime.Object, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down != nil {
		return true, nil, w.down
	}
	list := action.(clienttesting.ListActionImpl)
	all, err := w.Tracker().List(corev1.SchemeGroupVersion.WithResource("pods"), corev1.SchemeGroupVersion.WithKind("Pod"), list.Namespace)
	if err != nil {
		return true, nil, err
	}
	pods := all.(*corev1.PodList)
	slices.SortFunc(pods.Items, func(a, b corev1.Pod) int { return slices.Compare([]byte(a.Name), []byte(b.Name)) })
	if list.ListOptions.Limit == 0 {
		return true, pods, nil
	}
	from, _ := strconv.Atoi(list.ListOptions.Continue)
	to := min(from+w.pageSize, len(pods.Items))
	if to < len(pods.Items) {
		pods.Continue = strconv.Itoa(to)
	}
	pods.Items = pods.Items[from:to]
	return true, pods, nil
}

// asked are the requests since it was called last.
func (w *world) asked() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	asked := w.requests
	w.requests = nil
	return asked
}

// named gives a Pod a name, and its UID with that.
func named(namespace, name string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Namespace, pod.Name, pod.UID = namespace, name, types.UID(name)
	}
}

func accountNamed(namespace, name string, changes ...func(*corev1.ServiceAccount)) *corev1.ServiceAccount {
	account := newAccount(changes...)
	account.Namespace, account.Name = namespace, name
	return account
}

func names(pods []Pod) []string {
	all := make([]string, 0, len(pods))
	for i := range pods {
		all = append(all, pods[i].String())
	}
	return all
}
