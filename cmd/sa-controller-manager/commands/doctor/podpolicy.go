// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"

	"sa-controller-manager/admission/podpolicy"
)

// checkPodPolicy finds whether Pods without an account are admitted while the webhook is away, where kube-apiserver
// needs it.
func checkPodPolicy(ctx context.Context, c *cluster) (answer, error) {
	problem, err := podpolicy.Problem(ctx, c.Client)
	if err != nil || problem == "" {
		return answer{}, err
	}
	if called, bad, err := tryPod(ctx, c, false); err == nil && !called && len(bad) == 0 {
		return skipped("kube-apiserver has its ServiceAccount plugin"), nil // as after a handback
	}
	return answer{Findings: []finding{found("policy-missing", problem,
		"kubectl apply -k manifests/permissions/policy"+c.Kubeconfig+"; if the webhook is off, "+c.webhookCommand("register"))}}, nil
}
