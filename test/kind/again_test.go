// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kind

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/manifests"

	"sa-controller-manager/test/await"
)

// TestTakeoverAgain takes over with some flags and again with others, deletes our roles, and hands back in
// two calls, the first without the manifest of kube-controller-manager.
func TestTakeoverAgain(t *testing.T) {
	c := create(t, stock(t, 0))
	c.awaitPods(t, metav1.NamespaceSystem, allReady)
	before := c.controlPlaneManifests(t)
	const first, second, third = "--token-secrets=auto", "--webhook-max-in-flight=300", "--concurrent-serviceaccount-token-syncs=7"
	t.Log(c.product(t, "kubeadm", "takeover", first, "--extra-arg="+second))
	t.Log(c.product(t, "kubeadm", "takeover", "--extra-arg="+third))
	c.checkStatus(t, first, "--extra-arg="+second, "--extra-arg="+third)
	for _, flag := range []string{first, second, third} {
		if manifest := c.readManifest(t, "sa-controller-manager"); !strings.Contains(manifest, "\n    - "+flag+"\n") {
			t.Errorf("%s is not in:\n%s", flag, manifest)
		}
	}
	t.Log(c.product(t, "kubeadm", "takeover", "--reset", "--extra-arg="+third))
	c.checkStatus(t, "--extra-arg="+third)

	t.Run("LostRoles", c.loseRoles)

	const kcm, away = "/etc/kubernetes/manifests/kube-controller-manager.yaml", "/root/kube-controller-manager.yaml"
	c.onNode(t, "mv", kcm, away)
	t.Log(c.product(t, "kubeadm", "handback", "--steps=kube-apiserver"))
	c.onNode(t, "mv", away, kcm)
	t.Log(c.product(t, "kubeadm", "handback"))
	c.checkHandedBack(t, before, "handed-back")
}

// checkStatus wants a node that was taken over with the flags.
func (c *cluster) checkStatus(t *testing.T, flags ...string) {
	t.Helper()
	var status struct {
		State string   `json:"state"`
		Flags []string `json:"flags"`
	}
	testutil.Must(t, json.Unmarshal([]byte(c.product(t, "kubeadm", "status", "--output=json")), &status))
	testutil.Check(t, "state", "taken-over", status.State)
	testutil.Check(t, "flags", flags, status.Flags)
}

// loseRoles deletes our roles and bindings, as a restore of etcd from before the takeover does, and waits
// until they are back.
func (c *cluster) loseRoles(t *testing.T) {
	api := c.client.RbacV1()
	list := func() (names []string) {
		roles, err := api.ClusterRoles().List(t.Context(), metav1.ListOptions{})
		testutil.Must(t, err)
		for i := range roles.Items {
			if strings.HasPrefix(roles.Items[i].Name, manifests.User) {
				names = append(names, roles.Items[i].Name)
			}
		}
		return names
	}
	lost := list()
	for _, name := range lost {
		testutil.Must(t, api.ClusterRoles().Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	// The first takeover needed to create Secrets, the last one does not.
	needed := slices.DeleteFunc(slices.Clone(lost), func(name string) bool { return name == manifests.User+":token-secrets" })
	if len(needed) != len(lost)-1 {
		t.Fatalf("our roles are %q", lost)
	}
	bindings, err := api.ClusterRoleBindings().List(t.Context(), metav1.ListOptions{})
	testutil.Must(t, err)
	isOurs := func(s rbacv1.Subject) bool { return s.Name == manifests.User }
	deleted := 0
	for i := range bindings.Items {
		if one := &bindings.Items[i]; len(one.Subjects) == 1 && isOurs(one.Subjects[0]) {
			testutil.Must(t, api.ClusterRoleBindings().Delete(t.Context(), one.Name, metav1.DeleteOptions{}))
			deleted++
		}
	}
	begun := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	err = await.Poll(ctx, func(context.Context) error {
		if back := list(); !slices.Equal(back, needed) {
			return fmt.Errorf("of %q there are %q", needed, back)
		}
		return nil
	})
	testutil.Must(t, err)
	t.Logf("%q and %d bindings are back after %v", needed, deleted, time.Since(begun).Round(time.Second))
}
