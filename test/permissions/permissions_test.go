// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	"slices"
	"strings"
	"testing"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/app/permissions"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/manifests"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

// TestEveryVerb takes each verb of each part away from a user who has nothing but the
// roles of that part: what is missing is that and nothing else.
func TestEveryVerb(t *testing.T) {
	w := &world{testcluster.Shared(t)}
	parts := map[permissions.Part][]permissions.Rule{
		"unusual": rulesOf(t, "--controllers=-*", "--external-signer-socket=/run/signer.sock", "--webhook-port=0", "--secure-port=0"),
	}
	for _, rule := range slices.Concat(permissions.StandardRules(options.New()), permissions.OptionalRules()) {
		parts[rule.Part] = append(parts[rule.Part], rule)
	}
	for part, rules := range parts {
		t.Run(string(part), func(t *testing.T) {
			t.Parallel()
			user := w.identity(t, string(part))
			user.grant(t, rules, permissions.Access{})
			tried := 0
			for _, access := range permissions.Accesses(rules) {
				if covered(access, permissions.Accesses(rules)) {
					continue
				}
				user.grant(t, rules, access)
				tried++
			}
			if tried == 0 {
				t.Error("nothing could be taken away")
			}
		})
	}
}

// covered reports whether something wider grants the access as well.
func covered(access permissions.Access, all []permissions.Access) bool {
	for _, wider := range all {
		if wider == access {
			continue
		}
		narrowed := access
		if wider.Name == "" {
			narrowed.Name = ""
		}
		if wider.Namespace == "" {
			narrowed.Namespace = ""
		}
		if narrowed == wider {
			return true
		}
	}
	return false
}

// TestGrantedLater: a process with one verb short names it, is not ready and does not end; what is
// granted while it runs is used without a restart, and what is missing holds up nobody else.
func TestGrantedLater(t *testing.T) {
	w := &world{testcluster.Shared(t)}
	rules := permissions.StandardRules(options.New())
	user := w.identity(t, manifests.User)
	missing := permissions.Access{Verb: "patch", Resource: "secrets"}
	user.grant(t, rules, missing)
	manager := w.start(t, user)
	awaitLog(t, manager, `"Permissions are missing, retrying until they are granted" err="user \"`+"system:sa-controller-manager"+`\" lacks permissions: patch secrets`)
	awaitLog(t, manager, `"Apply this to grant the missing permissions" yaml=`)
	if _, err := manager.Get(t.Context(), "/readyz"); err == nil || !strings.Contains(err.Error(), " lacks permissions: patch secrets") {
		t.Errorf("/readyz says %v, want it to name what is missing", err)
	}
	w.AwaitAccounts(t, "default", "default")
	w.CreateSecret(t, testcluster.TokenSecret("default", "mine", "default"))

	user.grant(t, rules, permissions.Access{})
	if err := manager.Ready(testcluster.Context(t)); err != nil {
		t.Fatalf("%v\n%s", err, manager.LogTail(20))
	}
	awaitLog(t, manager, "All permissions are granted now")
	w.AwaitFilled(t, "default", "mine")
}

func (w *world) start(t *testing.T, user *identity, flags ...string) *devcluster.Manager {
	t.Helper()
	manager, err := testcluster.Binary(t).StartManager(w.Cluster, append(flags,
		"--kubeconfig="+user.kubeconfig, "--leader-elect=true", "--token-secrets=manual")...)
	testutil.Must(t, err)
	return manager
}

func awaitLog(t *testing.T, manager *devcluster.Manager, text string) {
	t.Helper()
	if err := manager.AwaitLog(testcluster.Context(t), text); err != nil {
		t.Fatalf("%v\n%s", err, manager.LogTail(40))
	}
}
