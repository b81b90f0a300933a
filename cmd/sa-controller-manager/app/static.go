// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"os"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/internal/apiservers"
)

// servingCAFile is the name of the serving CA of a host below --static-registration-dir.
const servingCAFile = "serving-ca.json"

// registerStatic builds what keeps the configurations as files. It does not wait for the API
// server, which may need the webhook before it has answered us.
func (w *webhook) registerStatic(m *Manager, config *registration.Config) error {
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("find the name of this host: %w", err)
	}
	w.static = registration.NewStaticFiles(registration.StaticFilesConfig{
		Config: *config, Dir: m.Options.Webhook.StaticDir, Loaded: apiservers.LoadedFiles(m.Client, host),
	})
	w.follow(AtOnce, w.static.Run)
	return nil
}

// WriteWebhookManifests writes the webhook configurations for a manager with these options as files
// below dir, and returns their paths. It sends no request.
func WriteWebhookManifests(o *options.Options, dir string, caBundle []byte) ([]string, error) {
	o.Webhook.Registration = registration.Static
	m := &Manager{Host: Host{Options: o}}
	return m.webhookSpec().WriteStatic(dir, caBundle)
}
