// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/integration/faultproxy"
	"sa-controller-manager/test/integration/testcluster"
)

// TestWhatIsWatched shows which objects a manager holds in memory. Secrets of other types are not
// among them.
func TestWhatIsWatched(t *testing.T) {
	c := testcluster.Shared(t)
	const (
		onlyTokens  = "type=kubernetes.io/service-account-token"
		onlyRootCAs = "metadata.name=kube-root-ca.crt"
		onlyBundles = "spec.signerName=kubernetes.io/kube-apiserver-serving"
	)
	type watches map[string][]string // resource to the field selectors of its watches
	cases := map[string]struct {
		reason string
		flags  []string
		want   watches
	}{
		"Everything": {
			reason: "one watch for each resource, however many controllers ask",
			flags:  []string{"--token-secrets=auto"},
			want: watches{
				"namespaces": {""}, "configmaps": {onlyRootCAs}, "serviceaccounts": {""}, "secrets": {onlyTokens}, "clustertrustbundles": {onlyBundles},
			},
		},
		"WithoutASigningKey": {
			reason: "as in kube-controller-manager, that turns the token controller off",
			flags:  []string{"--service-account-private-key-file=", "--controllers=*,-legacy-service-account-token-cleaner"},
			want: watches{
				"namespaces": {""}, "configmaps": {onlyRootCAs}, "serviceaccounts": {""}, "clustertrustbundles": {onlyBundles},
			},
		},
		"NoController": {
			flags: []string{"--controllers=-*"},
			want:  watches{},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := c.Proxy(t)
			// The managers work side by side, so only one may create Secrets.
			m := c.ManageThrough(t, proxy, append([]string{"--token-secrets=manual"}, tc.flags...)...)
			if _, works := tc.want["secrets"]; works {
				createAndAwaitOne(t, c)
				m.WaitIdle(t)
			}
			// The leader starts some watches after it is ready.
			testcluster.AwaitRequests(t, proxy, faultproxy.On("watch", ""), func(all []faultproxy.Request) bool {
				return len(all) >= len(slices.Concat(slices.Collect(maps.Values(tc.want))...))
			})
			got := watches{}
			for _, request := range proxy.Requests(faultproxy.On("watch", "")) {
				got[request.Resource] = append(got[request.Resource], request.Query.Get("fieldSelector"))
				if request.Query.Get("sendInitialEvents") != "true" {
					t.Errorf("a watch does not stream its list: %v", request)
				}
				if !strings.HasPrefix(request.Accept, "application/vnd.kubernetes.protobuf") {
					t.Errorf("a watch is not in protobuf but in %q", request.Accept)
				}
			}
			sorted := cmpopts.SortSlices(strings.Compare)
			testutil.Check(t, tc.reason+"\nwatches", tc.want, got, sorted)
			for _, request := range proxy.Requests(faultproxy.On("list", "").Or(faultproxy.On("get", "secrets"))) {
				// A list of one ClusterTrustBundle shows whether kube-apiserver serves them.
				if request.Name != "sa-controller-manager-root-ca" && request.Resource != "leases" && request.Resource != "clustertrustbundles" {
					t.Errorf("unneeded: %v", request)
				}
			}
		})
	}
}

// createAndAwaitOne has a manager fill a Secret, beside one of another type.
func createAndAwaitOne(t *testing.T, c *testcluster.ControlPlane) {
	t.Helper()
	namespace := c.Namespace(t)
	c.CreateAccount(t, namespace, "someone")
	c.CreateSecret(t, testcluster.Opaque(namespace, "opaque"))
	c.CreateSecret(t, testcluster.TokenSecret(namespace, "mine", "someone"))
	c.AwaitFilled(t, namespace, "mine")
}
