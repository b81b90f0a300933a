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

// renewalWait is longer than the time between two renewals (--leader-elect-retry-period).
const renewalWait = 5 * time.Second

const fixNoLeader = "start sa-controller-manager; if it runs, see its log and /readyz?verbose. With --leader-elect=false skip this check"

// checkLeader checks that a replica runs the controllers.
func checkLeader(ctx context.Context, c *cluster) (answer, error) {
	lease, err := c.lease(ctx)
	if err != nil {
		return answer{}, err
	}
	if lease != nil && !isHeld(lease, c.Clock.Now()) && ptr.Deref(lease.Spec.HolderIdentity, "") != "" {
		// The clocks of hosts may differ, so only a change shows that the Lease is renewed.
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

// lease returns the Lease of leader election, nil if there is none.
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

// renewed reads the Lease again after a while. If it was renewed meanwhile, it gets the time of
// this clock.
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

// leaderless says why no replica leads; it returns "" if one does.
func leaderless(lease *coordinationv1.Lease, name string, now time.Time) string {
	switch {
	case lease == nil:
		return "there is no Lease " + name + ": no replica has ever led"
	case ptr.Deref(lease.Spec.HolderIdentity, "") == "":
		return "no replica holds the Lease " + name + ": the controllers do not run"
	case !isHeld(lease, now):
		return fmt.Sprintf("%s holds the Lease %s and has not renewed it since %s: the controllers do not run",
			*lease.Spec.HolderIdentity, name, lease.Spec.RenewTime.UTC().Format(time.RFC3339))
	}
	return ""
}
