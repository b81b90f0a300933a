// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"fmt"
	"slices"

	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod"
	"sa-controller-manager/manifests"
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

// socketMount is the directory that kube-apiserver and our process share. It is mounted as a whole,
// because a recreated socket is another file.
func socketMount() staticpod.Mount {
	return staticpod.Mount{Name: Manager, Path: manifests.SignerDirectory}
}

// SigningKeys are the key files that kube-apiserver gets back where it has no record of them.
type SigningKeys struct {
	Private string
	Verify  []string
}

// signerOut replaces the key flags by the socket. It removes them, because kube-apiserver counts an
// empty one as given (k8s.io/kubernetes pkg/controlplane/apiserver/options/validation.go).
func (c Changes) signerOut(m *staticpod.Manifest, e *staticpod.Edit) error {
	if err := knowsSigner(c.version(m)); err != nil {
		return err
	}
	flags, err := m.Flags(endpointFlag, SigningKeyFlag, VerifyKeyFlag)
	if err != nil {
		return err
	}
	endpoint := flags[endpointFlag]
	if last := staticpod.Last(endpoint); last != "" && last != manifests.SignerSocket {
		return fmt.Errorf("--%s=%s is in use already by another signer", endpointFlag, last)
	}
	for _, key := range slices.Concat(flags[SigningKeyFlag], flags[VerifyKeyFlag]) {
		e.Remove = append(e.Remove, key.Item)
	}
	slices.Sort(e.Remove)
	if len(endpoint) == 0 {
		e.Append = append(e.Append, Assign(endpointFlag, manifests.SignerSocket))
	}
	*e, err = m.Remount(*e, true, socketMount())
	return err
}

// signerIn replaces the socket by the key flags.
func (keys SigningKeys) signerIn(m *staticpod.Manifest, e *staticpod.Edit) error {
	endpoint, err := m.Flag(endpointFlag)
	if err != nil {
		return err
	}
	for _, value := range endpoint {
		if !slices.Contains(e.Remove, value.Item) {
			e.Remove = append(e.Remove, value.Item)
		}
	}
	if len(endpoint) > 0 {
		if keys.Private == "" || len(keys.Verify) == 0 {
			return fmt.Errorf("neither the backup nor our manifest says which --%s and --%s it had; add them by hand, and remove --%s",
				SigningKeyFlag, VerifyKeyFlag, endpointFlag)
		}
		for _, file := range keys.Verify {
			putBack(m, e, Assign(VerifyKeyFlag, file))
		}
		putBack(m, e, Assign(SigningKeyFlag, keys.Private))
	}
	*e, err = m.Remount(*e, false, socketMount())
	return err
}

// putBack adds a flag where kubeadm has it, in alphabetical order: the patch of a later takeover names
// it by its place in what kubeadm writes.
func putBack(m *staticpod.Manifest, e *staticpod.Edit, flag string) {
	for i, given := range m.Command() {
		if i > 0 && given > flag && !slices.Contains(e.Remove, i) {
			if e.Insert == nil {
				e.Insert = map[int][]string{}
			}
			e.Insert[i] = append(e.Insert[i], flag)
			return
		}
	}
	e.Append = append(e.Append, flag)
}

// Signs reports whether our process signs kube-apiserver's tokens now.
func (f Files) Signs() (bool, error) {
	m, err := f.Parse()
	if err != nil {
		return false, nil //nolint:nilerr // the callers that need the manifest report it
	}
	endpoint, err := m.Flag(endpointFlag)
	return staticpod.Last(endpoint) == manifests.SignerSocket, err
}

// SigningKeys returns the key files that kube-apiserver's backup names, or else our manifest.
func (f Files) SigningKeys(own []byte) SigningKeys {
	if backup, err := staticpod.Parse(f.Backup, APIServer); err == nil {
		flags, err := backup.Flags(SigningKeyFlag, VerifyKeyFlag)
		if private := staticpod.Last(flags[SigningKeyFlag]); err == nil && private != "" {
			keys := SigningKeys{Private: private}
			for _, file := range flags[VerifyKeyFlag] {
				keys.Verify = append(keys.Verify, file.Text)
			}
			return keys
		}
	}
	return SigningKeys{Private: OwnFlag(own, KeyFlag), Verify: OwnFlags(own, VerifyKeyFlag)}
}

// knowsSigner refuses versions of kube-apiserver without the flag. of is an image or a version.
func knowsSigner(of string) error {
	return notOlder(of, signerMinor, "with an external signer that is on by default")
}
