// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import "sa-controller-manager/cmd/sa-controller-manager/commands/preflight"

// buildPreflight prepares the questions; they are asked in the background once the API
// server answers.
func (m *manager) buildPreflight() error {
	needs, err := preflight.RequiredBy(m.options)
	if err != nil {
		return err
	}
	m.preflight = preflight.NewWatcher(m.clients.main, preflight.Rules(needs))
	return nil
}
