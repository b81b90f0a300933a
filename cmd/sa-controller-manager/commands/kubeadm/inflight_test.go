// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"testing"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/manifests/staticpod"
)

// TestInFlight: our webhook answers as many calls as kube-apiserver may make, or Pods of a burst would be refused.
func TestInFlight(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		server []string
		want   string
	}{
		"Defaults":   {},
		"Lowered":    {server: []string{"--max-requests-inflight=100"}},
		"Raised":     {server: []string{"--max-requests-inflight=800"}, want: "1000"},
		"BothRaised": {server: []string{"--max-requests-inflight=800", "--max-mutating-requests-inflight=400"}, want: "1200"},
	} {
		p := newControlPlane(t, "v1.37", tc.server...)
		p.writeSteps(t, takeover, 1)
		testutil.Check(t, name, tc.want, staticpod.CommandIn([]byte(p.files(t)[ownFile])).Last("webhook-max-in-flight"))
	}
}
