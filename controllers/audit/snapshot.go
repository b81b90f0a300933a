// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"

	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/paging"
	"sa-controller-manager/internal/podsecrets"
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
			if err := s.addPod(&page.Items[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *snapshot) addPod(pod *corev1.Pod) error {
	names, err := podsecrets.Names(&pod.Spec)
	if err != nil {
		return err
	}
	for name := range sets.New(names...) { // a Pod may name a Secret several times
		of := s.users[name]
		if of.count++; len(of.first) < shownPods {
			of.first = append(of.first, pod.Name)
		}
		s.users[name] = of
	}
	return nil
}
