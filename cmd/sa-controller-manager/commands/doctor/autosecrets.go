// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"slices"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
)

const autoSecretsRemedy = "start the manager with --token-secrets=manual, or with --token-secrets-excluded-namespaces for these; what is there stays, " +
	"so delete each Secret once nobody uses it: tokens audit says which are unused"

// checkAutoSecrets finds what --token-secrets=auto, the binary's default, has made for the accounts
// of the control plane: tokens that do not expire, of accounts that are as good as cluster-admin.
func checkAutoSecrets(ctx context.Context, c *cluster) (answer, error) {
	secrets, err := c.tokenSecrets(ctx)
	if err != nil {
		return answer{}, err
	}
	excluded, made := options.New().AutoExcluded(), 0
	var names []string
	for _, secret := range secrets {
		if !secret.AutoCreated() {
			continue
		}
		made++
		// What replaces another one is re-issue's, in any mode.
		if slices.Contains(excluded, secret.Namespace) && secret.Predecessor.Name == "" {
			names = append(names, secret.name())
		}
	}
	seen := answer{Note: fmt.Sprintf("%d of %d token Secrets made by this program", made, len(secrets))}
	if len(names) > 0 {
		seen.Findings = []finding{found("control-plane-token-secrets",
			"accounts of the control plane have token Secrets that nobody asked for, and their tokens do not expire", autoSecretsRemedy, names...)}
	}
	return seen, nil
}
