// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package ring

import (
	"fmt"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/reload"
)

// Open reads the ring and prepares to follow it (package reload). As long as the store lives, it
// refuses a change back to an earlier generation: an old copy may lack a key that has signed. Keys in
// other processes sign with sign.
func Open(path string, sign signing.RemoteSign, options reload.Options) (signing.Store, error) {
	var last *State // parse is never called concurrently
	opened, err := reload.OpenStore(path, func(data []byte) (*signing.Ring, string, error) {
		state, err := decode(data, sign)
		if err != nil {
			return nil, "", err
		}
		if err := follows(last, state); err != nil {
			return nil, "", err
		}
		last = &state
		detail := fmt.Sprintf("generation %d", state.Generation)
		if state.InProgress() {
			detail += fmt.Sprintf(", a rotation to key %s is %s", state.Rotation.To, state.Phase())
		}
		return state.Ring(), detail, nil
	}, options)
	return opened, withHint(err)
}
