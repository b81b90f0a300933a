// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
	"sa-controller-manager/signing/testkeys"
)

func TestKeptForSigner(t *testing.T) {
	t.Parallel()
	f, err := openFiles(&options.Keys{
		PrivateKeyFile: clitest.WriteFile(t, "sa.key", testkeys.P256()),
		VerifyKeyFiles: []string{clitest.WriteFile(t, "old.key", testkeys.P384()), clitest.WriteFile(t, "older.key", testkeys.P521())},
	})
	if err != nil {
		t.Fatal(err)
	}
	m := &manager{options: options.New(), files: f}
	if m.keptForSigner() != nil {
		t.Error("without a socket somebody asks")
	}
	m.options.ExternalSigner.Socket = "/run/signer.sock"
	kept := m.keptForSigner()
	for name, tc := range map[string]struct {
		key  []byte
		want bool
	}{
		"of the first file":        {testkeys.P384(), true},
		"of the second file":       {testkeys.P521(), true},
		"of the private key file":  {testkeys.P256(), false}, // which will hold another one
		"of a file that was there": {testkeys.RSA2048(), false},
	} {
		if got := kept(keyID(t, tc.key)); got != tc.want {
			t.Errorf("a key %s is kept: %t, want %t", name, got, tc.want)
		}
	}
}
