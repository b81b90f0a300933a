// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"sa-controller-manager/internal/atomicfile"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/ringfile"
	"sa-controller-manager/signing/rotation"
)

// Export says which key goes where.
type Export struct {
	KeyID   string // "" is the key that signs
	Private bool   // the private key, in place of its public half
	Path    string // of the file to write, "" to print
	Replace bool   // the file may be there
}

// Export prints a key as PEM or writes it to a file.
func (o *Operator) Export(stdout io.Writer, export Export) error {
	state, err := o.File.Read()
	if err != nil {
		return err
	}
	key := state.Active()
	if export.KeyID != "" {
		var ok bool
		if key, ok = state.Key(export.KeyID); !ok {
			return fmt.Errorf("the ring has no key %s: keys list has their IDs", export.KeyID)
		}
	}
	data, err := exported(key, export.Private)
	if err != nil {
		return err
	}
	if export.Path == "" {
		_, err := stdout.Write(data)
		return err
	}
	switch info, err := os.Stat(export.Path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case !export.Replace:
		return fmt.Errorf("%s is there already: --replace replaces it", export.Path)
	case export.Private && info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%s has mode %#o and others could read the key: chmod 600 %s", export.Path, info.Mode().Perm(), export.Path)
	}
	return atomicfile.Write(export.Path, data, 0o600)
}

func exported(key rotation.Key, private bool) ([]byte, error) {
	if !private {
		return signing.EncodePublicKeys(key.Pair.Public())
	}
	if key.PublicOnly {
		return nil, fmt.Errorf("only the public half of key %s is in the ring", key.ID)
	}
	return key.Pair.PEM(), nil
}

// Import brings another copy of the ring here, and reports whether that has changed anything.
func (o *Operator) Import(path string) (changed bool, err error) {
	return o.File.Import(ringfile.At(path))
}
