// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"slices"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"sa-controller-manager/admission/serviceaccount"
	"sa-controller-manager/cmd/sa-controller-manager/commands/jwks"
	"sa-controller-manager/controllers/rootca"
	"sa-controller-manager/internal/printers"
)

// defaultGrace is for cluster.Grace.
const defaultGrace = time.Minute

// check is one thing to look at.
type check struct {
	Name string
	// About says in a few words what is looked at.
	About string

	run func(context.Context, *cluster) (answer, error)
}

// answer is what a check has seen. An error instead means that it could not tell.
type answer struct {
	Findings []finding
	// Note says what was seen, or that there was nothing to look at.
	Note string
}

// finding is what a check has found.
type finding struct {
	Check string `json:"check"`
	printers.Finding
}

// cluster is what checks look at, and what the user knows about it. It is for one run.
type cluster struct {
	Client kubernetes.Interface
	// Get reads a path of the API server that is no resource.
	Get func(ctx context.Context, path string) ([]byte, error)
	// Dial connects to a kube-apiserver at its own address.
	Dial  func(url string) (kubernetes.Interface, error)
	Clock clock.Clock
	// Version is kube-apiserver's.
	Version string
	// Grace is how old an object must be before it counts that nobody has seen to it.
	Grace time.Duration

	// Namespace and Account are whose token is tried. The trial Pod is in Namespace.
	Namespace, Account string
	// LeaseNamespace and LeaseName are those of --leader-elect-resource-*.
	LeaseNamespace, LeaseName string
	// User is the identity of the manager, empty for what the bindings say.
	User string
	// Plugin is the configuration of the ServiceAccount plugin.
	Plugin serviceaccount.Config
	// RootCA is --root-ca-file, nil if it is not given.
	RootCA *rootca.Bundle
	// Keys are those of --service-account-key-file, --service-account-private-key-file and
	// --service-account-key-ring.
	Keys []jwks.Key

	// ManagerKubeconfig is that of the manager, if this is its host.
	ManagerKubeconfig string
	// Kubeconfig is the flag that leads commands of a remedy to the same cluster, with a blank
	// before it, or empty.
	Kubeconfig string

	read reads
}

func found(code, message, remedy string, objects ...string) finding {
	return finding{Finding: printers.Finding{Code: code, Message: message, Objects: objects, Remedy: remedy}}
}

// checks are all that there are, in the order in which they are made: what everything
// else depends on comes first.
func checks() []check {
	return []check{
		{Name: "token", About: "a fresh token is accepted; the keys of tokens in Secrets are known to kube-apiserver", run: checkToken},
		{Name: "keys", About: "kube-apiserver knows the keys of the given key files", run: checkKeys},
		{Name: "apiservers", About: "every kube-apiserver knows the keys that the others and the replicas sign with", run: checkAPIServers},
		{Name: "leader", About: "a replica leads", run: checkLeader},
		{Name: "permissions", About: "the manager may do what it has to", run: checkPermissions},
		{Name: "webhook", About: "the webhook is registered, called and first, and a Pod gets its account and token", run: checkWebhook},
		{Name: "control-plane", About: "kube-apiserver and kube-controller-manager leave our part of the work to us", run: checkControlPlane},
		{Name: "identity", About: "the client certificate of the manager is good for long, on the node that has it", run: checkIdentity},
		{Name: "certificates", About: "the serving CA is valid, and registered", run: checkCertificates},
		{Name: "namespaces", About: "every namespace has its default account and the same root CA", run: checkNamespaces},
		{Name: "secrets", About: "token Secrets have an account, a token and the root CA", run: checkSecrets},
		{Name: "references", About: "accounts list no Secret that does not exist", run: checkReferences},
		{Name: "second-controller", About: "nobody else fills token Secrets", run: checkSecondController},
		{Name: "missed", About: "no Pod was admitted without the webhook", run: checkMissed},
	}
}

// checkNames are those of all checks.
func checkNames() []string {
	var names []string
	for _, check := range checks() {
		names = append(names, check.Name)
	}
	return names
}

// selected returns the checks in only, or all if that is empty, without those in skip.
func selected(only, skip []string) []check {
	return slices.DeleteFunc(checks(), func(c check) bool {
		return len(only) > 0 && !slices.Contains(only, c.Name) || slices.Contains(skip, c.Name)
	})
}
