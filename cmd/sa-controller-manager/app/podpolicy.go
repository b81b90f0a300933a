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
	"sa-controller-manager/cmd/sa-controller-manager/app/resolve"
)

const podPolicyInterval = time.Minute

// buildPodPolicy builds the check that says what is wrong with the policies for Pods. It does not fail: the
// webhook does not need them.
func (m *Manager) buildPodPolicy(p *Part) error {
	if m.Options.Webhook.Port == 0 || m.Options.Webhook.Registration == registration.None {
		return nil
	}
	ordinary, err := resolve.Ordinary(&m.Options.Admission)
	if err != nil {
		return err
	}
	var last atomic.Value
	last.Store("not checked yet")
	p.Run = func(ctx context.Context) error {
		wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, podPolicyInterval)
			defer cancel()
			problem, err := podpolicy.Problems(ctx, m.Client, ordinary)
			if err != nil {
				problem = err.Error()
			}
			if last.Swap(problem) != problem && problem != "" {
				m.Logger.Info("The policies for Pods are not as they should be", "reason", problem)
			}
		}, podPolicyInterval, 0.1, true)
		return nil
	}
	p.Check = func() (string, error) { return last.Load().(string), nil }
	return nil
}
