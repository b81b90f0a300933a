// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

// Mode is the product's --token-secrets.
type Mode string

const (
	// Auto makes a token Secret for each account.
	Auto Mode = "auto"
	// Manual fills those that users make.
	Manual Mode = "manual"
)

// ModeOf is the mode of a run: that of one seed in three is Manual.
func ModeOf(seed uint64) Mode {
	if seed%3 == 0 {
		return Manual
	}
	return Auto
}

// OwnSecrets is how many auto-created Secrets each account has.
func (m Mode) OwnSecrets() int {
	if m == Auto {
		return 1
	}
	return 0
}
