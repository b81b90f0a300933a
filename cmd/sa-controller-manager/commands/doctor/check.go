// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"sa-controller-manager/admission/serviceaccount"
	"sa-controller-manager/cmd/sa-controller-manager/commands/jwks"
	"sa-controller-manager/controllers/rootca"
)

// DefaultGrace is for Cluster.Grace.
const DefaultGrace = time.Minute

// Check is one thing to look at.
type Check struct {
	Name string
	// About says in a few words what is looked at.
	About string

	run func(context.Context, *Cluster) (Answer, error)
}

// Answer is what a check has seen. An error instead means that it could not tell.
type Answer struct {
	Findings []Finding
	// Note says what was seen, or that there was nothing to look at.
	Note string
}

// Finding is something that a person has to see to. Its JSON form is that of the
// command's output.
type Finding struct {
	Check   string `json:"check"`
	Problem string `json:"problem"`
	// Objects are those that it is about, if there are several alike.
	Objects []string `json:"objects,omitempty"`
	Mend    string   `json:"mend"`
}

// Cluster is what checks look at, and what a person knows about it. It is for one Run.
type Cluster struct {
	Client kubernetes.Interface
	// Get reads a path of the API server that is no resource.
	Get   func(ctx context.Context, path string) ([]byte, error)
	Clock clock.Clock
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

	read reads
}

// count is a number of things; both forms of the words are given, as verbs differ too.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func found(problem, mend string, objects ...string) Finding {
	return Finding{Problem: problem, Objects: objects, Mend: mend}
}

// Checks are all that there are, in the order in which they are made: what everything
// else depends on comes first.
func Checks() []Check {
	return []Check{
		{Name: "token", About: "a fresh token is accepted; the keys of tokens in Secrets are known to kube-apiserver", run: checkToken},
		{Name: "keys", About: "kube-apiserver knows the keys of the given key files", run: checkKeys},
		{Name: "leader", About: "a replica leads", run: checkLeader},
		{Name: "permissions", About: "the manager may do what it has to", run: checkPermissions},
		{Name: "webhook", About: "the webhook is registered and called, and a Pod gets its account and token", run: checkWebhook},
		{Name: "certificates", About: "the serving CA is valid, and registered", run: checkCertificates},
		{Name: "namespaces", About: "every namespace has its default account and the same root CA", run: checkNamespaces},
		{Name: "secrets", About: "token Secrets have an account, a token and the root CA", run: checkSecrets},
		{Name: "second-controller", About: "nobody else fills token Secrets", run: checkSecondController},
		{Name: "missed", About: "no Pod was admitted without the webhook", run: checkMissed},
	}
}

// Names are those of all checks.
func Names() []string {
	var names []string
	for _, check := range Checks() {
		names = append(names, check.Name)
	}
	return names
}

// Select returns the checks in only, or all if that is empty, without those in skip.
func Select(only, skip []string) []Check {
	return slices.DeleteFunc(Checks(), func(c Check) bool {
		return len(only) > 0 && !slices.Contains(only, c.Name) || slices.Contains(skip, c.Name)
	})
}
