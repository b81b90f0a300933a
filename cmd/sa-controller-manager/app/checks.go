// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"strings"

	"sa-controller-manager/admission/registration"
)

// What /livez and /readyz ask. Each answers from memory, at once.

func (m *manager) liveChecks() []Check {
	return []Check{{Name: "leader-election", Probe: func() (string, error) { return "", m.watchdog.Check(nil) }}}
}

func (m *manager) readyChecks() []Check {
	checks := []Check{
		{Name: "permissions", Probe: m.preflight.Status},
		{Name: "caches", Probe: func() (string, error) { return "", m.cachesReady() }},
		{Name: "watches", Probe: func() (string, error) { return "", m.freshness.Check() }},
	}
	if m.activator != nil {
		checks = append(checks, Check{Name: "signing-key", Probe: func() (string, error) { return m.activator.Status(), nil }})
	}
	if m.ring != nil && m.files.keysDir != nil {
		checks = append(checks, Check{Name: "key-directory", Probe: m.keysDirProbe})
	}
	if m.agreement != nil {
		checks = append(checks, Check{Name: "key-ring", Probe: func() (string, error) { return m.agreement.Status(), nil }})
	}
	if m.webhook != nil {
		checks = append(checks,
			Check{Name: "webhook-certificate", Probe: func() (string, error) { return "", m.webhook.source.Ready() }},
			Check{Name: "webhook-registration", Probe: func() (string, error) { return registrationProbe(m.webhook.registrar.Status()) }})
	}
	if m.options.ExternalSigner.Socket != "" {
		checks = append(checks, Check{Name: "external-signer", Probe: func() (string, error) { return m.signer.Status() }})
	}
	return append(checks, m.liveChecks()...)
}

// registrationProbe says how far the registration is, in the error if there is one.
func registrationProbe(status registration.Status) (string, error) {
	if err := status.Check(); err != nil {
		return "", err
	}
	return status.String(), nil
}

func (m *manager) cachesReady() error {
	if missing := m.view.Missing(); len(missing) > 0 {
		return fmt.Errorf("not listed yet: %s", strings.Join(missing, ", "))
	}
	return nil
}
