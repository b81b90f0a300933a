// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"slices"
	"strings"
	"testing"

	"sa-controller-manager/signing/testkeys"
)

// TestTakeoverLosesNoKey is about a key that kube-apiserver verifies with and our process cannot.
func TestTakeoverLosesNoKey(t *testing.T) {
	t.Parallel()
	short := slices.Concat(testkeys.RSA2048(), testkeys.RSA1024())
	cases := map[string]struct {
		reason string
		signer bool
		verify []byte // nil if the file is not there
		want   string // "" if it is planned
	}{
		"Short":         {signer: true, verify: short, want: "/etc/kubernetes/pki/sa.pub: found an RSA key of 1024 bits; accepted is "},
		"Usable":        {signer: true, verify: slices.Concat(testkeys.RSA2048(), testkeys.P256())},
		"NotThere":      {reason: "our process says so", signer: true},
		"WithoutSigner": {reason: "kube-apiserver keeps its files", verify: short},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newSigningControlPlane(t)
			for _, one := range components() {
				p.write(t, "etc/kubernetes/manifests/"+one.name+".yaml", read(t, p.config.manifest(one.name)))
			}
			p.config.ManifestsDir = p.dir + "/etc/kubernetes/manifests"
			p.config.ExternalSigner = tc.signer
			if tc.verify != nil {
				p.write(t, "etc/kubernetes/pki/sa.pub", tc.verify)
			}
			err := Takeover(t.Context(), p.config) // a dry run
			if tc.want == "" {
				if err != nil {
					t.Errorf("%s: %v", tc.reason, err)
				}
				return
			}
			if want := "--service-account-key-file of kube-apiserver: " + p.dir + tc.want; err == nil || !strings.HasPrefix(err.Error(), want) || p.out.Len() > 0 {
				t.Errorf("%s: got %v after %q, want %s after nothing", tc.reason, err, &p.out, want)
			}
		})
	}
}
