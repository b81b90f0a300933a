// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/preflight"

	"sa-controller-manager/test/devcluster"
)

// timeout bounds every wait.
const timeout = 3 * time.Minute

func TestMain(m *testing.M) {
	// A race-enabled binary sleeps a second at its end by default.
	if os.Getenv("GORACE") == "" {
		_ = os.Setenv("GORACE", "atexit_sleep_ms=0 exitcode=0")
	}
	goleak.VerifyTestMain(m)
}

// world is a control plane and an administrator.
type world struct {
	*devcluster.Cluster

	admin kubernetes.Interface
}

func newWorld(t *testing.T, verificationKeys ...string) *world {
	t.Helper()
	cluster, err := devcluster.Start(t.Context(), devcluster.Options{ExtraKeyFiles: verificationKeys})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	admin, err := cluster.Client()
	if err != nil {
		t.Fatal(err)
	}
	return &world{cluster, admin}
}

// identity is a user of its own, who may do nothing yet.
type identity struct {
	world      *world
	user       string
	kubeconfig string
	client     kubernetes.Interface
}

func (w *world) identity(t *testing.T, user string) *identity {
	t.Helper()
	kubeconfig, config, err := w.Identity(user)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return &identity{w, user, kubeconfig, client}
}

// rulesOf is what a process with these flags needs.
func rulesOf(t *testing.T, flags ...string) []preflight.Rule {
	t.Helper()
	o, _, err := options.Parse(flags)
	if err != nil {
		t.Fatal(err)
	}
	rules, err := preflight.Rules(o)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// grant gives the user all that the rules have but for one access, in roles of its own,
// and returns once kube-apiserver knows.
func (i *identity) grant(t *testing.T, rules []preflight.Rule, but preflight.Access) {
	t.Helper()
	i.apply(t, without(rules, but))
	var want []preflight.Access
	if but != (preflight.Access{}) {
		want = []preflight.Access{but}
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	for {
		report := preflight.Check(ctx, i.client, preflight.Accesses(rules))
		if err := report.Err(); err != nil {
			t.Fatal(err)
		}
		if slices.Equal(report.Missing(), want) && report.User == i.user {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond): // nothing announces that RBAC has caught up
		case <-ctx.Done():
			t.Fatalf("%s: missing is %v, want %v", i.user, report.Missing(), want)
		}
	}
}

// without takes one access out of rules.
func without(rules []preflight.Rule, but preflight.Access) []preflight.Rule {
	var left []preflight.Rule
	for _, rule := range rules {
		if slices.Contains(preflight.Accesses([]preflight.Rule{rule}), but) {
			// A verb that nobody has keeps the rule, and so its role, in place.
			rule.Verbs = append(slices.DeleteFunc(slices.Clone(rule.Verbs), func(verb string) bool { return verb == but.Verb }), "none")
		}
		left = append(left, rule)
	}
	return left
}

func (i *identity) apply(t *testing.T, rules []preflight.Rule) {
	t.Helper()
	for _, object := range preflight.Grant(i.user, rules, preflight.Accesses(rules)) {
		if err := i.put(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
}

// put creates or updates.
func (i *identity) put(ctx context.Context, object runtime.Object) error {
	rbac := i.world.admin.RbacV1()
	switch o := object.(type) {
	case *rbacv1.ClusterRole:
		return either(ctx, o, rbac.ClusterRoles().Create, rbac.ClusterRoles().Update)
	case *rbacv1.Role:
		return either(ctx, o, rbac.Roles(o.Namespace).Create, rbac.Roles(o.Namespace).Update)
	case *rbacv1.ClusterRoleBinding:
		return either(ctx, o, rbac.ClusterRoleBindings().Create, rbac.ClusterRoleBindings().Update)
	case *rbacv1.RoleBinding:
		return either(ctx, o, rbac.RoleBindings(o.Namespace).Create, rbac.RoleBindings(o.Namespace).Update)
	}
	return nil
}

func either[T any](ctx context.Context, object T, create func(context.Context, T, metav1.CreateOptions) (T, error),
	update func(context.Context, T, metav1.UpdateOptions) (T, error),
) error {
	_, err := create(ctx, object, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = update(ctx, object, metav1.UpdateOptions{})
	}
	return err
}
