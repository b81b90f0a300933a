// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

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
	t.Run("Everything", func(t *testing.T) {
		c := controlPlane(t)
		proxy := c.proxy(t)
		c.manage(t, append(proxy.Flags(t), "--token-secrets=auto", "--pod-token=secret", "--webhook-allow-broad-rules",
			"--enable-admission-plugins=AlwaysAdmit,DenyEscalatingExec,NamespaceLifecycle,SecurityContextDeny")...)
		c.create(t, c.namespace(t), newPod())
		c.watched(t, proxy, watches{
			"namespaces":                      {""},
			"serviceaccounts":                 {""},
			"configmaps":                      {"metadata.name=kube-root-ca.crt", "metadata.name=sa-controller-manager-hosts"},
			"leases":                          {""}, // those of kube-apiservers, by their label
			"secrets":                         {"metadata.name=sa-controller-manager-key-ring", onlyCA, onlyTokens},
			"mutatingwebhookconfigurations":   {onlyOurs},
			"validatingwebhookconfigurations": {onlyOurs},
		})
	})
	t.Run("OnlyTheWebhook", func(t *testing.T) {
		c := controlPlane(t)
		proxy := c.proxy(t)
		m := c.start(t, append(proxy.Flags(t), "--controllers=-*", "--webhook-registration=none", "--pod-token=projected")...)
		m.awaitReady(t)
		namespace := c.namespace(t)
		c.createAccount(t, namespace, "builder")
		if got := m.answer(t, "/mutate", review(t, namespace, newPod(of("builder")), false)); !got.Allowed || len(got.Patch) == 0 {
			t.Errorf("got %+v, want that the Pod is admitted and patched", got)
		}
		c.watched(t, proxy, watches{"serviceaccounts": {""}, "secrets": {onlyCA}})
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
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("watches (-want +got):\n%s", diff)
	}
	for _, request := range proxy.Requests(faultproxy.On("list", "")) {
		if request.Resource == "pods" || request.Resource == "leases" {
			continue // the scan for missed ones, see TestMissedPods; the cleaner's look at the clock
		}
		t.Errorf("unneeded: %v", request)
	}
}

// proxy records what passes on to kube-apiserver.
func (c *cluster) proxy(t *testing.T) *faultproxy.Proxy {
	t.Helper()
	return faultproxy.ForTest(t, c.Config())
}
