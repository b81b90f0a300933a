// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"

	"sa-controller-manager/controllers/legacytokencleaner"
)

// shownPods is how many Pods that use a Secret are named.
const shownPods = 5

// users are the Pods that name a Secret.
type users struct {
	first []string
	count int
}

// scene is what else matters of a namespace.
type scene struct {
	accounts map[string]*account
	users    map[string]users // by name of the Secret

	mu      sync.Mutex
	reaches map[string]reach // by name of the account
}

// readScene reads a namespace in pages. A Pod that finishes or begins meanwhile may be missed or there twice.
func readScene(ctx context.Context, client kubernetes.Interface, namespace string) (*scene, error) {
	s := &scene{accounts: map[string]*account{}, users: map[string]users{}, reaches: map[string]reach{}}
	err := eachObject(ctx, func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return client.CoreV1().ServiceAccounts(namespace).List(ctx, options)
	}, s.addAccount)
	if err != nil {
		return nil, fmt.Errorf("list ServiceAccounts of namespace %s: %w", namespace, err)
	}
	err = eachObject(ctx, func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return client.CoreV1().Pods(namespace).List(ctx, options)
	}, s.addPod)
	if err != nil {
		return nil, fmt.Errorf("list Pods of namespace %s: %w", namespace, err)
	}
	return s, nil
}

func (s *scene) addAccount(of *corev1.ServiceAccount) {
	kept := &account{uid: of.UID}
	if len(of.Secrets) > 0 {
		kept.secrets = make(map[string]struct{}, len(of.Secrets))
	}
	for _, reference := range of.Secrets {
		kept.secrets[reference.Name] = struct{}{}
	}
	s.accounts[of.Name] = kept
}

func (s *scene) addPod(pod *corev1.Pod) {
	names := map[string]struct{}{} // a Pod may name a Secret several times
	legacytokencleaner.VisitSecrets(&pod.Spec, func(name string) { names[name] = struct{}{} })
	for name := range names {
		of := s.users[name]
		if of.count++; len(of.first) < shownPods {
			of.first = append(of.first, pod.Name)
		}
		s.users[name] = of
	}
}

// reach asks once for each account.
func (s *scene) reach(name string) (found reach, asked bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, asked = s.reaches[name]
	return found, asked
}

func (s *scene) setReach(name string, found reach) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reaches[name] = found
}

// eachObject calls visit with every object of a list, page by page. Visit keeps none of it.
func eachObject[T any](ctx context.Context, list pager.ListPageFunc, visit func(*T)) error {
	pages := pager.New(list)
	pages.PageSize, pages.PageBufferSize = pageSize, 0
	return pages.EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		visit(any(object).(*T))
		return nil
	})
}
