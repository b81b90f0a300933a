// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	logsapi "k8s.io/component-base/logs/api/v1"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
)

// maxLogLevel is the highest level that is ever in force. From level 8 on client-go
// logs the bodies of requests and answers (rest/request.go, logBody), and with them
// tokens and keys.
const maxLogLevel = 7

// applyLogs makes the options those of the whole process. It is called once,
// before anything logs. It reports whether a level was lowered to maxLogLevel.
func applyLogs(o *options.Logs) (lowered bool, err error) {
	config, lowered := lowerLevels(o.Config)
	return lowered, logsapi.ValidateAndApply(config, nil)
}

// lowerLevels returns config with no level above maxLogLevel, and whether one was.
func lowerLevels(config *logsapi.LoggingConfiguration) (*logsapi.LoggingConfiguration, bool) {
	config = config.DeepCopy()
	levels := []*logsapi.VerbosityLevel{&config.Verbosity}
	for i := range config.VModule {
		levels = append(levels, &config.VModule[i].Verbosity)
	}
	lowered := false
	for _, level := range levels {
		if *level > maxLogLevel {
			*level, lowered = maxLogLevel, true
		}
	}
	return config, lowered
}
