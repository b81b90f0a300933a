// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"fmt"

	"sa-controller-manager/manifests"
	"sa-controller-manager/manifests/staticpod"
)

// Flags of kube-apiserver for its keys.
const (
	SigningKeyFlag = "service-account-signing-key-file"
	VerifyKeyFlag  = "service-account-key-file"
	endpointFlag   = "service-account-signing-endpoint"

	// signerMinor is the first Kubernetes 1.x in which the external signer is on by
	// default (k8s.io/kubernetes pkg/features, ExternalServiceAccountTokenSigner).
	signerMinor = 34
)

// signer replaces the key flags by the socket. It removes them, because kube-apiserver counts an
// empty one as given (k8s.io/kubernetes pkg/controlplane/apiserver/options/validation.go).
func (t *Taken) signer(m *staticpod.Manifest) error {
	if err := notOlder(m.Image(), signerMinor, "with an external signer that is on by default"); err != nil {
		return err
	}
	if err := m.Understands(endpointFlag, SigningKeyFlag, VerifyKeyFlag); err != nil {
		return err
	}
	command := m.Command()
	switch last := command.Last(endpointFlag); {
	case last != "" && last != manifests.SignerSocket:
		return fmt.Errorf("--%s=%s is in use already by another signer", endpointFlag, last)
	case last == "":
		t.Lines = append(t.Lines, signerLine())
	}
	for i, one := range command {
		if line := (staticpod.Command{one}); len(line.All(SigningKeyFlag))+len(line.All(VerifyKeyFlag)) > 0 {
			t.Removed = append(t.Removed, Line{At: i, Text: one})
		}
	}
	// The directory is mounted as a whole, because a recreated socket is another file.
	t.mount(m, Mount{Name: Manager, Path: manifests.SignerDirectory})
	return nil
}

// Signs reports whether our process signs kube-apiserver's tokens now.
func (f Files) Signs() bool {
	return f.Command().Last(endpointFlag) == manifests.SignerSocket
}
