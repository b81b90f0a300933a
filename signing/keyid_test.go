// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signing_test

import (
	"testing"

	"sa-controller-manager/signing/testkeys"
)

// TestKeyID compares with the kid that upstream's token generator (k8s.io/kubernetes
// pkg/serviceaccount, v1.36.3) wrote for the same keys. A change here would orphan every token that
// exists.
func TestKeyID(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		key  []byte
		want string
	}{
		"rsa-2048": {testkeys.RSA2048(), "08iLkgQ_1toJ0m7DOaK-qM-kpePj85P8ak2auCJDaGY"},
		"rsa-3072": {testkeys.RSA3072(), "OGLTNkUD8pt-PUHaqG0FEdB-Be2obBdnuME6cqww83c"},
		"p256":     {testkeys.P256(), "LswSX_8-TRzY3vSJg2wtCj6KrsbIeMNUDdtbd2GtVO4"},
		"p384":     {testkeys.P384(), "ndNms7FPZ8s0S_IEu2oMbq1NJEIdqHD7aJWnSarOhh4"},
		"p521":     {testkeys.P521(), "6pjy9TG6KwWTWzO0JecgYc-tXr14m5ZojupBYOps-Ik"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := private(t, tc.key).ID(); got != tc.want {
				t.Errorf("key ID is %s, want %s", got, tc.want)
			}
		})
	}
}
