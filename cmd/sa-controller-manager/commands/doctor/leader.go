// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// renewalWait is longer than the pause between two renewals (--leader-elect-retry-period).
const renewalWait = 5 * time.Second

const fixNoLeader = "start the program, or look into its log and /readyz?verbose if it runs; with --leader-elect=false skip this check"

// checkLeader finds out whether somebody runs the controllers.
func checkLeader(ctx context.Context, c *cluster) (answer, error) {
	lease, err := c.lease(ctx)
	if err != nil {
		return answer{}, err
	}
	if lease != nil && !isHeld(lease, c.Clock.Now()) && ptr.Deref(lease.Spec.HolderIdentity, "") != "" {
		// The clocks may differ, as they may for replicas: what counts is that it changes.
		if lease, err = c.renewed(ctx, lease); err != nil {
			return answer{}, err
		}
	}
	problem := leaderless(lease, c.LeaseNamespace+"/"+c.LeaseName, c.Clock.Now())
	if problem != "" {
		return answer{Findings: []finding{found("no-leader", problem, fixNoLeader)}}, nil
	}
	return answer{Note: ptr.Deref(lease.Spec.HolderIdentity, "") + " leads"}, nil
}

// lease is nil if there is none.
func (c *cluster) lease(ctx context.Context) (*coordinationv1.Lease, error) {
	lease, err := c.Client.CoordinationV1().Leases(c.LeaseNamespace).Get(ctx, c.LeaseName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the Lease %s/%s: %w", c.LeaseNamespace, c.LeaseName, err)
	}
	return lease, nil
}

// renewed looks again after a while. A lease that was renewed meanwhile is given the
// time of this clock.
func (c *cluster) renewed(ctx context.Context, before *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	select {
	case <-c.Clock.After(renewalWait):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	after, err := c.lease(ctx)
	if err != nil || after == nil || after.Spec.RenewTime.Equal(before.Spec.RenewTime) {
		return after, err
	}
	after = after.DeepCopy()
	after.Spec.RenewTime = &metav1.MicroTime{Time: c.Clock.Now()}
	return after, nil
}

func isHeld(lease *coordinationv1.Lease, now time.Time) bool {
	if lease == nil || ptr.Deref(lease.Spec.HolderIdentity, "") == "" || lease.Spec.RenewTime == nil {
		return false
	}
	life := time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second
	return now.Before(lease.Spec.RenewTime.Add(life))
}

// leaderless says why nobody leads, "" if somebody does.
func leaderless(lease *coordinationv1.Lease, name string, now time.Time) string {
	switch {
	case lease == nil:
		return "there is no Lease " + name + ": no replica with leader election has ever led"
	case ptr.Deref(lease.Spec.HolderIdentity, "") == "":
		return "nobody holds the Lease " + name + ": the controllers do not run"
	case !isHeld(lease, now):
		return fmt.Sprintf("%s holds the Lease %s and has not renewed it since %s: the controllers do not run",
			*lease.Spec.HolderIdentity, name, lease.Spec.RenewTime.UTC().Format(time.RFC3339))
	}
	return ""
}
