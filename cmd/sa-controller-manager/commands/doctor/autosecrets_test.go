// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"sa-controller-manager/controllers/tokensecrets"
)

func TestAutoSecrets(t *testing.T) {
	t.Parallel()
	made := func(namespace, name string, changes ...func(*corev1.Secret)) func() runtime.Object {
		return func() runtime.Object {
			secret := edited(tokenOf(namespace, name, "default"), changes...)
			secret.Labels = map[string]string{tokensecrets.AutoCreatedLabel: "true"}
			return secret
		}
	}
	reissued := func(s *corev1.Secret) { s.Annotations[tokensecrets.ReplacesAnnotation] = "former/uid" }
	byHand := func() runtime.Object { return tokenOf("kube-system", "by-hand", "default") }
	try(t, "auto-secrets", map[string]checkCase{
		"Healthy":       {reason: "nothing to say"},
		"ControlPlanes": {reason: "their accounts rule the cluster", change: adding(made("kube-system", "a"), made("kube-public", "b")), want: []string{"control-plane-token-secrets: accounts of the control plane have token Secrets that nobody asked for, and their tokens do not expire: kube-public/b, kube-system/a"}},
		"Others":        {reason: "that is what auto is for", change: adding(made("shop", "a"))},
		"ByHand":        {reason: "a user asked for it", change: adding(byHand)},
		"Reissued":      {reason: "a user has the one that it replaces", change: adding(made("kube-system", "a", reissued))},
		"Down":          {reason: "not asked", change: failing("list", "secrets"), wantErr: "list token Secrets: the API is down"},
	})
}
