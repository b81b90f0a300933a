// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"sa-controller-manager/admission/serviceaccount"
	"sa-controller-manager/controllers/rootca"
	"sa-controller-manager/internal/printers"
	"sa-controller-manager/signing"
)

// defaultGrace is the default of cluster.Grace.
const defaultGrace = time.Minute

// check is one check of the command.
type check struct {
	Name string
	// About states in a few words what holds if the check finds nothing.
	About string

	run func(context.Context, *cluster) (answer, error)
}

// answer is the result of a check that could be completed.
type answer struct {
	Findings []finding
	// Note says what was checked, or why there was nothing to check.
	Note string
	// Skipped reports that there was nothing to check, which must not pass for a healthy cluster.
	Skipped bool
}

// finding is a problem that a check has found.
type finding struct {
	Check string `json:"check"`
	printers.Finding
}

// cluster is what checks read, and what the user has said about it. It serves one run.
type cluster struct {
	Client kubernetes.Interface
	// Get reads a path of the API server that is no resource.
	Get func(ctx context.Context, path string) ([]byte, error)
	// Dial connects to a kube-apiserver at its own address.
	Dial  func(url string) (kubernetes.Interface, error)
	Clock clock.Clock
	// Grace is the age below which objects are not checked: the controllers may not have reached
	// them yet.
	Grace time.Duration

	// A token is requested for Account in Namespace. The Pod with dryRun is created there, too.
	Namespace, Account string
	// LeaseNamespace and LeaseName are those of --leader-elect-resource-*.
	LeaseNamespace, LeaseName string
	// User is the user name of the manager; if empty, it comes from its ClusterRoleBinding.
	User string
	// Plugin is the configuration of the ServiceAccount plugin.
	Plugin serviceaccount.Config
	// RootCA is --root-ca-file, nil if it is not given.
	RootCA *rootca.Bundle
	// Keys are those of --service-account-key-file, --service-account-private-key-file and
	// --service-account-key-ring.
	Keys []signing.Key

	// Kubeconfig are the flags --kubeconfig and --context, each after a blank, that commands in a
	// remedy need to reach the same cluster; empty if none was given.
	Kubeconfig string

	read reads
}

// settled reports whether the controllers have had time to reach an object.
func (c *cluster) settled(o metav1.ObjectMeta) bool {
	return o.DeletionTimestamp == nil && c.Clock.Since(o.CreationTimestamp.Time) > c.Grace
}

// skipped is the answer of a check that has nothing to look at.
func skipped(reason string) answer { return answer{Note: reason, Skipped: true} }

func found(code, message, remedy string, objects ...string) finding {
	return finding{Finding: printers.Finding{Code: code, Message: message, Objects: objects, Remedy: remedy}}
}

// about is a finding about objects, and nil without any.
func about(objects []string, code, message, remedy string) []finding {
	if len(objects) == 0 {
		return nil
	}
	return []finding{found(code, message, remedy, objects...)}
}

// checks returns all checks in the order in which they run: what the others depend on comes
// first.
func checks() []check {
	return []check{
		{Name: "token", About: "kube-apiserver accepts a fresh token, and knows the keys of the tokens in Secrets", run: checkToken},
		{Name: "keys", About: "kube-apiserver knows the keys of the given key files", run: checkKeys},
		{Name: "apiservers", About: "every kube-apiserver knows the keys that the others and the replicas sign with", run: checkAPIServers},
		{Name: "key-rings", About: "each host has the active and the next key of the newest key ring", run: checkKeyRings},
		{Name: "permissions", About: "the manager has the permissions that it needs", run: checkPermissions},
		{Name: "webhook", About: "the webhook is registered, called and first, and a Pod gets its account and token", run: checkWebhook},
		{Name: "policy", About: "while the webhook is away, Pods without an account are refused", run: checkPodPolicy},
		{Name: "control-plane", About: "kube-apiserver and kube-controller-manager do not do the work of the manager", run: checkControlPlane},
		{Name: "namespaces", About: "every namespace has its default account and the same root CA", run: checkNamespaces},
		{Name: "trust-bundle", About: "the ClusterTrustBundle of kube-apiserver has that root CA too", run: checkTrustBundle},
		{Name: "secrets", About: "token Secrets have an account, a token and the root CA", run: checkSecrets},
		{Name: "references", About: "accounts list no Secret that does not exist", run: checkReferences},
	}
}

// checkNames returns the names of all checks.
func checkNames() []string {
	var names []string
	for _, check := range checks() {
		names = append(names, check.Name)
	}
	return names
}

// selected returns the checks in only, or all if only is empty, except those in skip.
func selected(only, skip []string) []check {
	return slices.DeleteFunc(checks(), func(c check) bool {
		return len(only) > 0 && !slices.Contains(only, c.Name) || slices.Contains(skip, c.Name)
	})
}
