// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package legacytokencleaner

import (
	"context"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/paging"
)

// Two limits keep a wrong clock, or missing labels of use, from making all legacy tokens of a
// cluster invalid in one round.

const (
	maxClockDifference = time.Hour

	// A round marks at most a tenth of the token Secrets, and may always mark minLimit.
	limitedPart = 10
	minLimit    = 10
)

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

// marksLeft returns how many Secrets a round of that day may mark: none once any day has reached the
// limit. The dates of the marks show that, whichever process wrote them.
func marksLeft(secrets []*tokensecrets.TokenSecret, today string) int {
	most := max(minLimit, len(secrets)/limitedPart)
	marks := map[string]int{}
	for _, secret := range secrets {
		if since := secret.Labels[tokensecrets.InvalidSinceLabel]; isDate(since) {
			marks[since]++
		}
	}
	for _, n := range marks {
		if n >= most {
			return 0
		}
	}
	return most - marks[today]
}

// reportLimit reports that the round has left Secrets unmarked, and how to go on.
func (c *Controller) reportLimit(ctx context.Context) {
	if c.round.unmarked == 0 {
		return
	}
	klog.FromContext(ctx).Info("Left unused legacy tokens unmarked, a round marks at most a tenth", "unmarked", c.round.unmarked)
	c.Recorder.Warn(c.Process, reasonLimited, "MarkInvalid", fmt.Sprintf(
		"unused legacy tokens are not marked invalid any more: in one round more than a tenth of all token Secrets, and more than %d, were to be marked. "+
			"If the labels %s and the clock are right, give --legacy-token-clean-up-unlimited", minLimit, tokensecrets.LastUsedLabel))
}
