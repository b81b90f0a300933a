// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"fmt"
	"maps"
	"path"
	"slices"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod"
	"sa-controller-manager/manifests"
	"sa-controller-manager/signing/remote"
	"sa-controller-manager/signing/ringfile"
)

// signerSockets returns the sockets of the processes that have keys of our ring, as our manifest names
// them. It refuses a ring with a key whose socket is not named, with which our process would end at
// every start; any other problem with the ring is reported by our process.
func (c *Config) signerSockets(manifest []byte) ([]string, error) {
	var sockets remote.Sockets
	if file := ownFlag(manifest, remote.SocketsFlag); file != "" {
		var err error
		if sockets, err = cli.ReadFile(remote.SocketsFlag, c.onNode(file), remote.ParseSockets); err != nil {
			return nil, err
		}
	}
	if ring := ownFlag(manifest, keyRingFlag); ring != "" {
		if state, err := ringfile.At(c.onNode(ring)).Read(); err == nil {
			if err := sockets.Check(state.Ring()); err != nil {
				return nil, err
			}
		}
	}
	for name, socket := range sockets {
		for _, shared := range []string{manifests.SignerDirectory, "/etc/kubernetes/pki"} {
			if staticpod.Below(path.Clean(socket), shared) {
				return nil, fmt.Errorf("--%s: %s: kube-apiserver has %s too, and must not reach %s, where any token is signed: move the socket to a directory of its own",
					remote.SocketsFlag, name, shared, socket)
			}
		}
		if err := manifests.Mountable(socket); err != nil {
			return nil, fmt.Errorf("--%s: %s: %w", remote.SocketsFlag, name, err)
		}
	}
	return slices.Sorted(maps.Values(sockets)), nil
}
