// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package serving implements the secure port: health, metrics and debugging paths over HTTPS, for
// clients that the API server authorizes. Its errors name the flags that every Kubernetes component
// has for these settings.
//
// New opens the port and reads every file, so that any problem is an error at start-up; it does not
// need the API server. Certificates and CAs are reloaded while Run serves. No path may reveal a
// secret: health paths need no permission.
package serving

import (
	cliflag "k8s.io/component-base/cli/flag"

	"sa-controller-manager/internal/serving/settings"
)

// Config configures a Server.
type Config struct {
	// Name and Version of the program.
	Name, Version string

	Port           settings.Port
	Authentication settings.Authentication
	Authorization  settings.Authorization
	Debugging      settings.Debugging

	// Flags are shown on /flagz, and Options on /configz, in JSON.
	Flags   cliflag.NamedFlagSets
	Options any
	// Live answers /livez and /healthz, Ready answers /readyz.
	Live, Ready []Check
}
