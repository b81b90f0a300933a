// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/admission/podscan"
)

// checkMissed finds Pods without account or token.
func checkMissed(ctx context.Context, c *Cluster) (Answer, error) {
	all, err := podscan.Finder{Client: c.Client, Config: c.Plugin}.Find(ctx, metav1.NamespaceAll)
	if err != nil {
		return Answer{}, fmt.Errorf("look for Pods that were admitted without the webhook: %w", err)
	}
	answer := Answer{Note: fmt.Sprintf("%s, %d uncertain", count(all.Looked, "Pod", "Pods"), len(all.Uncertain))}
	if len(all.Missed) == 0 {
		return answer, nil
	}
	var names []string
	for i := range all.Missed {
		names = append(names, all.Missed[i].String())
	}
	answer.Findings = []Finding{found(count(len(names), "Pod was", "Pods were")+" admitted without the webhook and without an account or token",
		"sa-controller-manager webhook missed --kubeconfig=/etc/kubernetes/admin.conf lists them, and what to type to have them created again", names...)}
	return answer, nil
}
