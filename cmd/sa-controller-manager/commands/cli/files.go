// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"

	"sa-controller-manager/admission"
	"sa-controller-manager/admission/serviceaccount"
	"sa-controller-manager/cmd/sa-controller-manager/app/options"
)

// ReadFile reads the file of a flag once: a command follows no file.
func ReadFile[T any](flag, path string, parse func([]byte) (T, error)) (parsed T, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return parsed, fmt.Errorf("--%s: %w", flag, err)
	}
	if parsed, err = parse(data); err != nil {
		return parsed, fmt.Errorf("--%s: %s: %w", flag, path, err)
	}
	return parsed, nil
}

// PluginConfig is what the ServiceAccount plugin runs with.
func PluginConfig(o *options.Admission) (serviceaccount.Config, error) {
	configuration, err := admission.ReadConfiguration(o.ConfigFile)
	if err != nil {
		return serviceaccount.Config{}, fmt.Errorf("--admission-control-config-file: %w", err)
	}
	own, err := configuration.For(serviceaccount.Name)
	if err != nil {
		return serviceaccount.Config{}, fmt.Errorf("--admission-control-config-file: %w", err)
	}
	return o.PluginConfig(own)
}
