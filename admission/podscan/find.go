// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package podscan

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"sa-controller-manager/admission/serviceaccount"
	"sa-controller-manager/internal/paging"
)

// stillRunning selects the Pods that have not ended.
const stillRunning = "status.phase!=" + string(corev1.PodSucceeded) + ",status.phase!=" + string(corev1.PodFailed)

// Finder finds the Pods that were missed. It is safe for concurrent use.
type Finder struct {
	Client kubernetes.Interface
	// Config is the plugin's configuration.
	Config serviceaccount.Config
}

// Found is the result of a Finder, sorted by namespace and name.
type Found struct {
	Missed    []Pod
	Uncertain []Pod
	Looked    int // number of Pods
}

// Find checks the Pods of a namespace, or all if it is empty. New Pods meanwhile are admitted by
// the webhook. Besides lists of Pods it sends one GET for each account of Pods that look missed.
func (f Finder) Find(ctx context.Context, namespace string) (Found, error) {
	var found Found
	lookups := newLookupCache(f.Client)
	options := metav1.ListOptions{FieldSelector: stillRunning}
	err := paging.Each(ctx, "Pods", paging.GoingOn(f.Client.CoreV1().Pods(namespace).List), options, func(page *corev1.PodList) error {
		for i := range page.Items {
			if err := f.add(ctx, &found, lookups, &page.Items[i]); err != nil {
				return err
			}
		}
		return nil
	})
	return found, err
}

// add classifies a Pod and adds it to found if it was missed.
func (f Finder) add(ctx context.Context, found *Found, lookups *lookupCache, pod *corev1.Pod) error {
	found.Looked++
	missing, uncertain, err := f.examine(ctx, lookups, pod)
	switch {
	case err != nil:
		return err
	case len(missing) == 0:
	case uncertain:
		found.Uncertain = append(found.Uncertain, describe(pod, missing, true))
	default:
		found.Missed = append(found.Missed, describe(pod, missing, false))
	}
	return nil
}

// examine classifies a Pod. It reads only the objects that this needs.
func (f Finder) examine(ctx context.Context, lookups *lookupCache, pod *corev1.Pod) (missing []Part, uncertain bool, _ error) {
	if !mayLack(f.Config, pod) {
		return nil, false, nil
	}
	account, err := lookups.account(ctx, pod.Namespace, serviceaccount.AccountOf(pod))
	if err != nil {
		return nil, false, err
	}
	missing, uncertain = classify(f.Config, pod, account)
	return missing, uncertain, nil
}
