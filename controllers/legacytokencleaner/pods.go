// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package legacytokencleaner

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"sa-controller-manager/internal/paging"
	"sa-controller-manager/internal/podsecrets"
)

// mountedSecrets returns the names of all Secrets that Pods of the namespace use, in any phase. The
// list asks for no resourceVersion and so gets the newest one, which all its pages have. If a page
// is requested too late, the list fails and the sync is retried.
func (c *Controller) mountedSecrets(ctx context.Context, namespace string) (sets.Set[string], error) {
	mounted := sets.New[string]()
	what := fmt.Sprintf("pods of namespace %q", namespace)
	err := paging.Each(ctx, what, c.Client.CoreV1().Pods(namespace).List, metav1.ListOptions{}, func(page *corev1.PodList) error {
		for i := range page.Items {
			names, err := podsecrets.Names(&page.Items[i].Spec)
			if err != nil {
				return err
			}
			mounted.Insert(names...)
		}
		return nil
	})
	return mounted, err
}
