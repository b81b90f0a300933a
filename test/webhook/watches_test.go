// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"slices"
	"testing"

	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/integration/faultproxy"
)

// watches are resources to the field selectors of their watches.
type watches map[string][]string

// TestWhatIsWatched counts the watches of one process: however many parts ask for a
// resource, there is one watch of it.
func TestWhatIsWatched(t *testing.T) {
	const (
		onlyTokens = "type=kubernetes.io/service-account-token"
		onlyCA     = "metadata.name=" + caSecretName
		onlyOurs   = "metadata.name=" + configurationName
	)
	c := controlPlane(t)
	proxy := c.proxy(t)
	c.manage(t, append(proxy.Flags(t), "--token-secrets=auto", "--pod-token=secret", "--webhook-allow-broad-rules",
		"--enable-admission-plugins=AlwaysAdmit,DenyEscalatingExec,NamespaceLifecycle,SecurityContextDeny")...)
	c.create(t, c.namespace(t), newPod())
	c.watched(t, proxy, watches{
		"namespaces":                      {""},
		"serviceaccounts":                 {""},
		"clustertrustbundles":             {"spec.signerName=kubernetes.io/kube-apiserver-serving"},
		"configmaps":                      {"metadata.name=kube-root-ca.crt"},
		"secrets":                         {onlyCA, onlyTokens},
		"mutatingwebhookconfigurations":   {onlyOurs},
		"validatingwebhookconfigurations": {onlyOurs},
	})
}

// watched holds a manager to its watches, and to not listing beside them.
func (c *cluster) watched(t *testing.T, proxy *faultproxy.Proxy, want watches) {
	t.Helper()
	got := watches{}
	for _, request := range proxy.Requests(faultproxy.On("watch", "")) {
		got[request.Resource] = append(got[request.Resource], request.Query.Get("fieldSelector"))
		slices.Sort(got[request.Resource])
	}
	testutil.Check(t, "watches", want, got)
	for _, request := range proxy.Requests(faultproxy.On("list", "")) {
		if request.Resource == "leases" || request.Resource == "clustertrustbundles" {
			continue // the cleaner's clock, and whether the API has bundles
		}
		t.Errorf("unneeded: %v", request)
	}
}

// proxy records what passes on to kube-apiserver.
func (c *cluster) proxy(t *testing.T) *faultproxy.Proxy {
	t.Helper()
	return faultproxy.ForTest(t, c.Config())
}
