// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"errors"
	"slices"

	"sa-controller-manager/internal/check"
)

// Check returns an error if readiness fails for the state.
func (s Status) Check() error {
	if slices.ContainsFunc(s.Findings(), func(f check.Finding) bool { return f.Unready }) {
		return errors.New(s.String())
	}
	return nil
}
