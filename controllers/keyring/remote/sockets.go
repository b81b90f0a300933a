// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"sigs.k8s.io/yaml"

	"sa-controller-manager/signing"
)

// SocketsFlag names the file that ParseSockets reads.
const SocketsFlag = "service-account-key-sockets"

const (
	socketsVersion = 1

	// maxPath is how long the path of a unix socket may be, in bytes (unix(7)).
	maxPath = 107
)

// Sockets has the path of each signer's socket on this host, by NAME.
type Sockets map[string]string

// ParseSockets reads the YAML file of a host strictly.
func ParseSockets(data []byte) (Sockets, error) {
	var file struct {
		SchemaVersion int     `json:"schemaVersion"`
		Sockets       Sockets `json:"sockets"`
	}
	if err := yaml.UnmarshalStrict(data, &file); err != nil {
		return nil, fmt.Errorf("want \"schemaVersion: %d\" and \"sockets:\" with a line \"NAME: PATH\" for each signer: %w", socketsVersion,
			err)
	}
	if file.SchemaVersion != socketsVersion {
		return nil, fmt.Errorf("schemaVersion is %d, want %d", file.SchemaVersion, socketsVersion)
	}
	names := map[string]string{} // by path
	for _, name := range slices.Sorted(maps.Keys(file.Sockets)) {
		path := file.Sockets[name]
		if !signing.ValidSignerName(name) {
			return nil, fmt.Errorf("sockets: name %q: want lower-case letters, digits, \"-\" and \".\", 63 at most", name)
		}
		if !filepath.IsAbs(path) || len(path) > maxPath {
			return nil, fmt.Errorf("sockets: %s: path %q: want an absolute path of at most %d bytes", name, path, maxPath)
		}
		if other, taken := names[filepath.Clean(path)]; taken {
			return nil, fmt.Errorf("sockets: %s and %s have the same path %s: one socket is one key", other, name, path)
		}
		names[filepath.Clean(path)] = name
	}
	return file.Sockets, nil
}

// Check wants a socket for each key of a ring that signs or will, as far as other processes have them.
func (s Sockets) Check(ring *signing.Ring) error {
	for _, key := range []*signing.PrivateKey{ring.Active(), ring.Next()} {
		if key == nil || key.Signer() == "" {
			continue
		}
		if name, _ := signing.ParseSigner(key.Signer()); s[name] == "" {
			return fmt.Errorf("the file of sockets: %s is what signs with key %s of the ring: want a line %q with the path of its socket",
				key.Signer(), key.ID(), name+": PATH")
		}
	}
	return nil
}
