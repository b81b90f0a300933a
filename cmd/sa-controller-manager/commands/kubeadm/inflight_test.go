// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"testing"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod/staticpodtest"
	"sa-controller-manager/internal/testutil"
)

func TestCheckInFlight(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		server, own []string
		mode        registration.Mode
		want        string
	}{
		"Defaults": {mode: registration.Static},
		"Raised": {
			server: []string{"--max-requests-inflight=800"}, mode: registration.Static,
			want: "kube-apiserver may have 1000 requests in flight, and our webhook answers 600 at a time: in a burst it would refuse Pods. " +
				"--extra-arg=--webhook-max-in-flight=1000 is enough.",
		},
		"BothRaised": {
			server: []string{"--max-requests-inflight=800"}, own: []string{"--webhook-max-in-flight=1000"}, mode: registration.Static,
		},
		"Lowered": {
			own: []string{"--webhook-max-in-flight=100"}, mode: registration.URL,
			want: "kube-apiserver may have 600 requests in flight, and our webhook answers 100 at a time: in a burst it would refuse Pods. " +
				"--extra-arg=--webhook-max-in-flight=600 is enough.",
		},
		"NoWebhook": {server: []string{"--max-requests-inflight=800"}, mode: registration.None},
	} {
		t.Run(name, func(t *testing.T) {
			p := newControlPlane(t, "v1.37", tc.server...)
			p.write(t, ownFile, staticpodtest.Own(tc.own))
			o, err := p.config.observe()
			testutil.Must(t, err)
			testutil.Check(t, "note", tc.want, checkInFlight(o, &desired{mode: tc.mode, own: o.current}))
		})
	}
}
