// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"strings"

	"sa-controller-manager/admission/podpolicy"
)

// checkPodPolicy finds what is wrong with the policies for Pods, where kube-apiserver needs the webhook.
func checkPodPolicy(ctx context.Context, c *cluster) (answer, error) {
	problem, err := podpolicy.Problems(ctx, c.Client, c.Plugin.Ordinary())
	if err != nil || problem == "" {
		return answer{}, err
	}
	if called, bad, err := tryPod(ctx, c, false); err == nil && !called && len(bad) == 0 {
		return skipped("kube-apiserver has its ServiceAccount plugin"), nil // as after a handback
	}
	remedy := "kubectl apply -k manifests/permissions/policy" + c.Kubeconfig + ", or permissions/completion; if the webhook is off, " +
		c.webhookCommand("register")
	if !c.Plugin.Ordinary() && strings.Contains(problem, podpolicy.CompletionName) {
		remedy = "kubectl delete mutatingadmissionpolicybindings " + podpolicy.CompletionName + "-default " + podpolicy.CompletionName +
			"-kube-system" + c.Kubeconfig + ", then the rest (docs/troubleshooting.md)"
	}
	return answer{Findings: []finding{found("policy-missing", problem, remedy)}}, nil
}
