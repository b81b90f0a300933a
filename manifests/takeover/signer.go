// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"time"

	"sa-controller-manager/controllers/keyring/remote"
	"sa-controller-manager/internal/flagfile"
	"sa-controller-manager/manifests"
	"sa-controller-manager/manifests/component"
	"sa-controller-manager/manifests/staticpod"
	"sa-controller-manager/signing"
)

// Flags of kube-apiserver and, below, ours that a takeover decides.
const (
	issuerFlag        = "service-account-issuer"
	maxExpirationFlag = "service-account-max-token-expiration"
	clientCAFlag      = "client-ca-file"

	SocketFlag           = "external-signer-socket"
	RegistrationFlag     = "webhook-registration"
	StaticDirFlag        = "static-registration-dir"
	ownMaxExpirationFlag = "external-signer-max-token-expiration"
)

// signerFlags returns the settings that our process shares with kube-apiserver when it signs its tokens,
// and the key files among them: previous ones, of our manifest, if it has none.
// It refuses a key file with a key that our process cannot verify with: kube-apiserver would refuse its
// tokens. Our process reports everything else that is wrong with a file when it starts, and then
// kube-apiserver is not changed.
func (c *Config) signerFlags(m *staticpod.Manifest, previous []string) (args, files []string, err error) {
	if err := m.Understands(issuerFlag, component.VerifyKeyFlag, maxExpirationFlag); err != nil {
		return nil, nil, err
	}
	command := m.Command()
	if len(command.All(issuerFlag)) == 0 {
		return nil, nil, fmt.Errorf("it has no --%s, and so issues no tokens", issuerFlag)
	}
	for _, file := range command.All(component.VerifyKeyFlag) {
		host, err := m.HostPath(file)
		if err != nil {
			return nil, nil, fmt.Errorf("--%s: %w", component.VerifyKeyFlag, err)
		}
		_, err = flagfile.Read(component.VerifyKeyFlag, c.onNode(host), signing.ParseAllPublicKeys)
		if err != nil && !errors.As(err, new(*fs.PathError)) {
			return nil, nil, err
		}
		files = append(files, host)
	}
	if len(files) == 0 {
		files = previous
	}
	args = []string{component.Assign(SocketFlag, manifests.SignerSocket)}
	for _, issuer := range command.All(issuerFlag) {
		args = append(args, component.Assign(issuerFlag, issuer))
	}
	for _, file := range files {
		args = append(args, component.Assign(component.VerifyKeyFlag, file))
	}
	text := command.Last(maxExpirationFlag)
	limit, err := time.ParseDuration(cmp.Or(text, "0"))
	if err != nil {
		return nil, nil, fmt.Errorf("--%s=%s is not a duration", maxExpirationFlag, text)
	}
	// Our default limit is a year, to which kube-apiserver extends the tokens of Pods. With a longer
	// one of its own it does not start if ours is shorter.
	if limit > 365*24*time.Hour {
		args = append(args, component.Assign(ownMaxExpirationFlag, limit.String()))
	}
	return args, files, nil
}

// signerSockets returns the sockets of the processes that have keys of our ring, as our manifest names
// them. It refuses a ring with a key whose socket is not named, with which our process would end at
// every start; any other problem with the ring is reported by our process.
func (c *Config) signerSockets(own staticpod.Command) ([]string, error) {
	sockets, err := readOwn(c, own, remote.SocketsFlag, remote.ParseSockets)
	if err != nil {
		return nil, err
	}
	if state, err := c.ownRing(own); err == nil && len(state.Keys) > 0 {
		if err := sockets.Check(state.Ring()); err != nil {
			return nil, err
		}
	}
	for name, socket := range sockets {
		for _, shared := range []string{manifests.SignerDirectory, "/etc/kubernetes/pki"} {
			if staticpod.Below(path.Clean(socket), shared) {
				return nil, fmt.Errorf("--%s: %s: kube-apiserver has %s too, and must not reach %s, where any token is signed: "+
					"move the socket to a directory of its own", remote.SocketsFlag, name, shared, socket)
			}
		}
		if err := manifests.Mountable(socket); err != nil {
			return nil, fmt.Errorf("--%s: %s: %w", remote.SocketsFlag, name, err)
		}
	}
	return slices.Sorted(maps.Values(sockets)), nil
}
