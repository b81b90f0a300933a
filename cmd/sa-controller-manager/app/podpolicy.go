// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"sa-controller-manager/admission/podpolicy"
	"sa-controller-manager/admission/registration"
)

const podPolicyInterval = time.Minute

// buildPodPolicy builds the check that says whether Pods without an account are refused while the webhook
// is away. It does not fail: the webhook does not need the policy.
func (m *Manager) buildPodPolicy(p *Part) error {
	if m.Options.Webhook.Port == 0 || m.Options.Webhook.Registration == registration.None {
		return nil
	}
	var last atomic.Value
	last.Store("not checked yet")
	p.Run = func(ctx context.Context) error {
		wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, podPolicyInterval)
			defer cancel()
			problem, err := podpolicy.Problem(ctx, m.Client)
			if err != nil {
				problem = err.Error()
			}
			if last.Swap(problem) != problem && problem != "" {
				m.Logger.Info("Pods without an account are not refused while the webhook is away", "reason", problem)
			}
		}, podPolicyInterval, 0.1, true)
		return nil
	}
	p.Check = func() (string, error) { return last.Load().(string), nil }
	return nil
}
