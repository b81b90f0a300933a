// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"reflect"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"sa-controller-manager/admission/podpolicy"
	"sa-controller-manager/admission/registration"
	"sa-controller-manager/internal/check"
	"sa-controller-manager/internal/series"
)

const podPolicyInterval = time.Minute

// buildPodPolicy builds the check that says what is wrong with the policies for Pods. It does not fail: the
// webhook does not need them.
func (m *Manager) buildPodPolicy(p *Part) error {
	if m.Options.Webhook.Port == 0 || m.Options.Webhook.Registration == registration.None {
		return nil
	}
	ordinary := m.Options.Admission.Plugin().Ordinary()
	var last atomic.Pointer[check.Result]
	last.Store(&check.Result{Note: "not checked yet"})
	codes := series.GaugeVec(m.Registry.MustRegister, "sacm_pod_policy_findings",
		"1 for each finding about the policies for Pods, by its code; absent without one.", "code")
	p.Run = func(ctx context.Context) error {
		wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, podPolicyInterval)
			defer cancel()
			findings, err := podpolicy.Findings(ctx, m.Client, ordinary)
			result := check.Result{Findings: findings}
			if err == nil {
				codes.Reset()
			} else {
				result.Note = err.Error()
			}
			for _, finding := range result.Findings {
				codes.WithLabelValues(finding.Code).Set(1)
			}
			if before := last.Swap(&result); !reflect.DeepEqual(before.Findings, result.Findings) && len(result.Findings) > 0 {
				m.Logger.Info("The policies for Pods are not as they should be", "reason", check.Error(result.Findings, "").Error())
			}
		}, podPolicyInterval, 0.1, true)
		return nil
	}
	p.Findings = func() (check.Result, error) { return *last.Load(), nil }
	return nil
}
