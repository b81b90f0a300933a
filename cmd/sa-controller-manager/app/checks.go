// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"strings"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/version"
	"sa-controller-manager/internal/serving"
)

func (m *manager) servingConfig() serving.Config {
	o := m.options
	return serving.Config{
		Name:           options.ProgramName,
		Version:        version.Info().GitVersion,
		Port:           o.SecureServing.Port,
		Authentication: o.Authentication.Authentication,
		Authorization:  o.Authorization.Authorization,
		Debugging:      o.Debugging.Debugging,
		Flags:          o.Flags(),
		Options:        o,
		Live:           m.liveChecks(),
		Ready:          m.readyChecks(),
	}
}

// What /livez and /readyz ask. Each answers from memory, at once.

func (m *manager) liveChecks() []serving.Check {
	return []serving.Check{{Name: "leader-election", Probe: func() (string, error) { return "", m.watchdog.Check(nil) }}}
}

func (m *manager) readyChecks() []serving.Check {
	checks := []serving.Check{
		{Name: "permissions", Probe: m.preflight.Status},
		{Name: "caches", Probe: func() (string, error) { return "", m.cachesReady() }},
		{Name: "watches", Probe: func() (string, error) { return "", m.freshness.Check() }},
	}
	if m.activator != nil {
		checks = append(checks, serving.Check{Name: "signing-key", Probe: func() (string, error) { return m.activator.Status(), nil }})
	}
	if m.ring != nil {
		checks = append(checks, serving.Check{Name: "key-store", Probe: m.storeProbe})
	}
	if m.agreement != nil {
		checks = append(checks, serving.Check{Name: "key-ring", Probe: func() (string, error) { return m.agreement.Status(), nil }})
	}
	if m.webhook != nil {
		checks = append(checks,
			serving.Check{Name: "webhook-certificate", Probe: func() (string, error) { return "", m.webhook.source.Ready() }},
			serving.Check{Name: "webhook-registration", Probe: func() (string, error) { return registrationProbe(m.webhook.registrar.Status()) }})
	}
	if m.options.ExternalSigner.Socket != "" {
		checks = append(checks, serving.Check{Name: "external-signer", Probe: func() (string, error) { return m.signer.Status() }})
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
	if missing := m.informers.Missing(); len(missing) > 0 {
		return fmt.Errorf("not listed yet: %s", strings.Join(missing, ", "))
	}
	return nil
}
