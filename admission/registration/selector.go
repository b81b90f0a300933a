// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
)

// NamespaceSelector reads from the API in which namespaces objects are mutated by the
// webhook. That is all of them if it is not registered under Name: nobody has excluded
// one then.
func NamespaceSelector(ctx context.Context, client kubernetes.Interface) (labels.Selector, error) {
	live, err := get(ctx, client, mutating)
	if err != nil {
		return nil, fmt.Errorf("read the %s %s: %w", mutating, Name, err)
	}
	entries := live.found().entries
	i := slices.IndexFunc(entries, func(one entry) bool { return one.Name == mutateName })
	if i < 0 || entries[i].NamespaceSelector == nil {
		return labels.Everything(), nil
	}
	selector, err := metav1.LabelSelectorAsSelector(entries[i].NamespaceSelector)
	if err != nil {
		return nil, fmt.Errorf("read the namespaceSelector of the %s %s: %w", mutating, Name, err)
	}
	return selector, nil
}
