// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package permissions takes permissions away from the product, one by one, on a real
// control plane with RBAC, and holds it to saying which one is missing and going on. It
// holds tests only.
package permissions

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/app/options/secureport"
	"sa-controller-manager/cmd/sa-controller-manager/app/permissions"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/manifests"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

// world is a control plane of one test.
type world struct{ *testcluster.ControlPlane }

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
			testutil.Expect(t, tried != 0, "nothing could be taken away")
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
	awaitLog(t, manager, `"Permissions are missing, retrying until they are granted" err="user \"system:sa-controller-manager\" `+
		`lacks permissions: patch secrets`)
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
	manager := testutil.Get(testcluster.Binary(t).StartManager(w.Cluster, append(flags,
		"--kubeconfig="+user.kubeconfig, "--leader-elect=true", "--token-secrets=manual")...))(t)
	return manager
}

func awaitLog(t *testing.T, manager *devcluster.Manager, text string) {
	t.Helper()
	if err := manager.AwaitLog(testcluster.Context(t), text); err != nil {
		t.Fatalf("%v\n%s", err, manager.LogTail(40))
	}
}

func TestMain(m *testing.M) { os.Exit(testcluster.Main(m)) }

func newWorld(t *testing.T, verificationKeys ...string) *world {
	t.Helper()
	return &world{testcluster.New(t, devcluster.Options{ExtraKeyFiles: verificationKeys})}
}

// identity is a user of its own, who may do nothing yet.
type identity struct {
	world            *world
	user, kubeconfig string
	client           kubernetes.Interface
}

func (w *world) identity(t *testing.T, user string) *identity {
	t.Helper()
	kubeconfig, config, err := w.Identity(user)
	testutil.Must(t, err)
	client := testutil.Get(kubernetes.NewForConfig(config))(t)
	return &identity{w, user, kubeconfig, client}
}

// rulesOf is what a process with these flags needs.
func rulesOf(t *testing.T, flags ...string) []permissions.Rule {
	t.Helper()
	o, _, err := secureport.Parse(flags)
	testutil.Must(t, err)
	return testutil.Get(permissions.Rules(o))(t)
}

// grant gives the user all that the rules have but for one access, in roles of its own,
// and returns once kube-apiserver knows.
func (i *identity) grant(t *testing.T, rules []permissions.Rule, but permissions.Access) {
	t.Helper()
	i.apply(t, without(rules, but))
	var want []permissions.Access
	if but != (permissions.Access{}) {
		want = []permissions.Access{but}
	}
	// Nothing announces that RBAC has caught up.
	testcluster.Poll(t, "the permissions of "+i.user, func() error {
		report := permissions.Check(t.Context(), i.client, permissions.Accesses(rules))
		if missing := report.Missing(); !slices.Equal(missing, want) || report.User != i.user {
			return errors.Join(report.Err(), fmt.Errorf("%s lacks %v, want %v", report.User, missing, want))
		}
		return report.Err()
	})
}

// without takes one access out of rules.
func without(rules []permissions.Rule, but permissions.Access) []permissions.Rule {
	var left []permissions.Rule
	for _, rule := range rules {
		if slices.Contains(permissions.Accesses([]permissions.Rule{rule}), but) {
			// A verb that nobody has keeps the rule, and so its role, in place.
			rule.Verbs = append(slices.DeleteFunc(slices.Clone(rule.Verbs), func(verb string) bool { return verb == but.Verb }), "none")
		}
		left = append(left, rule)
	}
	return left
}

// apply creates or updates the roles and their bindings, under the name of the user.
func (i *identity) apply(t *testing.T, rules []permissions.Rule) {
	t.Helper()
	own := func(text string) string { return strings.ReplaceAll(text, manifests.User, i.user) }
	for _, object := range permissions.Grant(rules, permissions.Accesses(rules)) {
		data := testutil.Get(json.Marshal(object))(t)
		named, kind := object.(metav1.Object), strings.ToLower(object.GetObjectKind().GroupVersionKind().Kind)+"s"
		err := i.world.API.RbacV1().RESTClient().Patch(types.ApplyPatchType).NamespaceIfScoped(named.GetNamespace(), named.GetNamespace() != "").
			Resource(kind).Name(own(named.GetName())).Param("fieldManager", "test").Param("force",
			"true").Body([]byte(own(string(data)))).Do(t.Context()).Error()
		testutil.Must(t, err)
	}
}
