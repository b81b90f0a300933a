// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"time"

	"k8s.io/utils/ptr"

	"sa-controller-manager/internal/meta"
)

const (
	kcm = meta.UpstreamFieldManager

	secondControllerFix = "start kube-controller-manager with an empty --service-account-private-key-file=; " +
		"--controllers=-serviceaccount-token-controller does not turn its token controller off"
)

// checkSecondController finds Secrets that kube-controller-manager has filled since our leader
// took the Lease. That is a heuristic: it does not find a token controller that has had nothing
// to do.
func checkSecondController(ctx context.Context, c *cluster) (answer, error) {
	lease, err := c.lease(ctx)
	if err != nil {
		return answer{}, err
	}
	if !isHeld(lease, c.Clock.Now()) || lease.Spec.AcquireTime == nil {
		return answer{Note: "nothing to compare: no replica holds the Lease"}, nil
	}
	secrets, err := c.tokenSecrets(ctx)
	if err != nil {
		return answer{}, err
	}
	since := lease.Spec.AcquireTime.Time
	note := fmt.Sprintf("checked the Secrets that were filled since %s took the Lease", ptr.Deref(lease.Spec.HolderIdentity, ""))
	return answer{Findings: filledBySecond(secrets, since), Note: note}, nil
}

func filledBySecond(secrets []tokenSecret, since time.Time) []finding {
	var names []string
	for _, secret := range secrets {
		// Times in managedFields are whole seconds.
		if secret.filledBy == kcm && secret.filledAt.After(since) {
			names = append(names, secret.name())
		}
	}
	if len(names) == 0 {
		return nil
	}
	return []finding{found("second-token-controller", kcm+" has filled token Secrets since our leader took the Lease", secondControllerFix, names...)}
}
