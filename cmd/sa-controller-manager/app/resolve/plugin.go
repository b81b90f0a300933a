// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"fmt"
	"slices"

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

// Ordinary reports whether our webhook has nothing to add to what podpolicy.Completion does for a Pod.
func Ordinary(o *options.Admission) (bool, error) {
	config, err := PluginConfig(o)
	return err == nil && config.Ordinary() && slices.Equal(o.Enabled(), []string{serviceaccount.Name}), err
}
