// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"fmt"

	"sa-controller-manager/admission"
	"sa-controller-manager/admission/serviceaccount"
	"sa-controller-manager/cmd/sa-controller-manager/app/options"
)

// PluginConfig returns what the ServiceAccount plugin runs with.
func PluginConfig(o *options.Admission) (serviceaccount.Config, error) {
	configuration, err := admission.ReadConfiguration(o.ConfigFile)
	if err != nil {
		return serviceaccount.Config{}, fmt.Errorf("--admission-control-config-file: %w", err)
	}
	own, err := configuration.For(serviceaccount.Name)
	if err != nil {
		return serviceaccount.Config{}, fmt.Errorf("--admission-control-config-file: %w", err)
	}
	config, err := o.PluginConfig(own)
	if err != nil {
		return config, configuration.Error(serviceaccount.Name, err)
	}
	return config, nil
}
