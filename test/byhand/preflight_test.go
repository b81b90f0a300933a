// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package byhand

import (
	"strings"
	"testing"

	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

// TestPreflight has our user, who may do nothing, find out what is missing, and an
// administrator grant it with what the command prints.
func TestPreflight(t *testing.T) {
	cluster := testcluster.New(t, devcluster.Options{})
	kubeconfig, _, err := cluster.Identity("system:sa-controller-manager")
	testutil.Must(t, err)
	shell := newShell(t, cluster)
	preflight := "sa-controller-manager preflight --kubeconfig=" + kubeconfig +
		" --token-secrets=manual --webhook-registration=url --service-account-private-key-file=sa.key "
	steps := []struct {
		reason, command, code string
		prints                []string
	}{
		{"nothing is granted", preflight, "2", []string{
			"missing   create   pods", "token,legacy-token-cleaner,webhook", "are missing: ",
			"Remedy: apply manifests/permissions (with its token-secrets and options, if those are in use), or what this prints: " +
				"sa-controller-manager preflight -o grant",
		}},
		{
			"an administrator grants it", preflight + "-o grant 2>/dev/null | kubectl apply -f -", "0",
			[]string{"system:sa-controller-manager:webhook created"},
		},
		{"RBAC takes a moment", "until " + preflight + ">out; do sleep 0.1; done; cat out", "0", []string{"granted   create   pods"}},
		{"and there is nothing to grant any more", preflight + "-o grant | wc -c", "0", []string{"0\n"}},
		{"other flags need more", preflight + "--token-secrets=auto", "2", []string{" permissions are missing: create secrets\n"}},
	}
	commands := make([]string, 0, len(steps))
	for _, step := range steps {
		commands = append(commands, step.command)
	}
	for i, got := range shell.run(t, commands...) {
		step := steps[i]
		if got.code != step.code {
			t.Errorf("%s: exit code %s, want %s:\n%s", step.reason, got.code, step.code, got.printed)
		}
		for _, want := range step.prints {
			if !strings.Contains(got.printed, want) {
				t.Errorf("%s: %q is not in\n%s", step.reason, want, got.printed)
			}
		}
	}
}
