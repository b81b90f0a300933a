// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package legacytokencleaner

import (
	"context"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/internal/paging"
)

// maxClockDifference keeps a wrong clock from making all legacy tokens of a cluster invalid.
const maxClockDifference = time.Hour

// clockDiffers compares the clock of this process with those of the nodes.
func (c *Controller) clockDiffers(ctx context.Context) (bool, error) {
	var renewed []time.Time
	err := paging.Each(ctx, "leases of nodes", c.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).List, metav1.ListOptions{},
		func(page *coordinationv1.LeaseList) error {
			for _, lease := range page.Items {
				if lease.Spec.RenewTime != nil {
					renewed = append(renewed, lease.Spec.RenewTime.Time)
				}
			}
			return nil
		})
	return clockDiffers(c.Clock.Now(), renewed), err
}

// clockDiffers compares now with the median of the times at which nodes renewed their Leases. Of an
// even number of nodes the lower median counts: a clock that is ahead does the harm. One node is
// no reference, because this process may run on it.
func clockDiffers(now time.Time, renewed []time.Time) bool {
	if len(renewed) < 2 {
		return false
	}
	slices.SortFunc(renewed, time.Time.Compare)
	return now.Sub(renewed[(len(renewed)-1)/2]).Abs() > maxClockDifference
}
