// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"sa-controller-manager/controllers/legacytokencleaner"
	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/paging"
)

// shownPods is how many Pods that use a Secret are named.
const shownPods = 5

// users are the Pods that name a Secret.
type users struct {
	first []string
	count int
}

// snapshot is what else matters of a namespace.
type snapshot struct {
	accounts map[string]*account
	users    map[string]users // by name of the Secret
}

// read reads a namespace in pages. A Pod that finishes or begins meanwhile may be missed or
// there twice.
func (s *snapshot) read(ctx context.Context, client kubernetes.Interface, namespace string) error {
	all := client.CoreV1().ServiceAccounts(namespace).List
	err := paging.Each(ctx, "ServiceAccounts of namespace "+namespace, all,
		metav1.ListOptions{}, func(page *corev1.ServiceAccountList) error {
			for i := range page.Items {
				one := &page.Items[i]
				s.accounts[one.Name] = &account{uid: one.UID, secrets: tokensecrets.ReferencedBy(one)}
			}
			return nil
		})
	if err != nil {
		return err
	}
	pods := client.CoreV1().Pods(namespace).List
	return paging.Each(ctx, "Pods of namespace "+namespace, pods, metav1.ListOptions{}, func(page *corev1.PodList) error {
		for i := range page.Items {
			s.addPod(&page.Items[i])
		}
		return nil
	})
}

func (s *snapshot) addPod(pod *corev1.Pod) {
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
