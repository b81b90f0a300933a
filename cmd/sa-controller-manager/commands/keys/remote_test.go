// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"path/filepath"
	"testing"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing/signertest"
	"sa-controller-manager/signing/testkeys"
)

// TestKeyOfASigner: the commands take the key of another process, and cannot give it away.
func TestKeyOfASigner(t *testing.T) {
	t.Parallel()
	socket, ring := filepath.Join(t.TempDir(), "hsm.sock"), filepath.Join(t.TempDir(), "ring.json")
	signertest.ServeForeign(t, socket, "hsm/1:sa", testkeys.P256())
	sockets := testutil.WriteFile(t, "sockets.yaml", []byte("schemaVersion: 1\nsockets: {hsm: "+socket+"}\n"))
	hsm := []string{"--key=kep740:hsm", "--service-account-key-sockets=" + sockets, "--service-account-issuer=https://issuer.example"}
	goThrough(t, noCluster, ring, []step{
		{append([]string{"init"}, hsm...), 1, "is in another process (kep740:hsm), and so must be the one after it"},
		{append([]string{"init", "--next-key=none"}, hsm...), 0, "active   kep740:hsm"},
		{append([]string{"next"}, hsm...), 1, "is in the ring already, as active"},
		{[]string{"next"}, 1, "is in another process (kep740:hsm)"},
		{[]string{"next", "--algorithm=P-384"}, 0, "ES256       active   kep740:hsm"},
		{[]string{"export", "--kubeadm=" + t.TempDir()}, 0, "key hsm/1:sa is left out"},
	})
}
