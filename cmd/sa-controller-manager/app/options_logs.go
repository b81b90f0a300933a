// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"

	"github.com/spf13/pflag"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // the "json" log format
)

// LogOptions is the logging configuration of every Kubernetes component.
type LogOptions struct {
	config *logsapi.LoggingConfiguration
}

func newLogOptions() LogOptions {
	return LogOptions{config: logsapi.NewLoggingConfiguration()}
}

// AddFlags binds the group to fs.
func (o *LogOptions) AddFlags(fs *pflag.FlagSet) {
	logsapi.AddFlags(o.config, fs)
	for name, usage := range logUsages() {
		fs.Lookup(name).Usage = usage
	}
	fs.VisitAll(func(f *pflag.Flag) { setOrigin(fs, asKCM, f.Name) })
	// These need the feature gate LoggingAlphaOptions, and this binary has no
	// feature gates. They stay known, so that the answer says that.
	for name := range logAlphaFields() {
		_ = fs.MarkHidden(name)
	}
}

// logUsages replaces the library's texts: it knows neither what our log levels
// mean nor that the "json" format needs no feature gate here.
func logUsages() map[string]string {
	return map[string]string{
		"logging-format":      fmt.Sprintf("Format of the log: %q or %q.", logsapi.DefaultLogFormat, logsapi.JSONLogFormat),
		"log-flush-frequency": "Longest time that a line may wait in a buffer.",
		"v":                   "Log `level`: 0 is what an operator must know, 2 adds every object that was changed, 4 every sync, 6 what was seen in it.",
		"vmodule":             "Log levels by source file, as `pattern=N,...`; in text format only.",
	}
}

// logAlphaFields maps flags to the configuration fields that they set, for
// those that no value but the default is allowed for.
func logAlphaFields() map[string]string {
	return map[string]string{
		"log-text-split-stream":     "options.text.splitStream",
		"log-text-info-buffer-size": "options.text.infoBufferSize",
		"log-json-split-stream":     "options.json.splitStream",
		"log-json-info-buffer-size": "options.json.infoBufferSize",
	}
}

// Validate returns every problem of the group.
func (o *LogOptions) Validate() []error {
	flagOf := map[string]string{"verbosity": "v"}
	for flag, field := range logAlphaFields() {
		flagOf[field] = flag
	}
	var p problems
	for _, err := range logsapi.Validate(o.config, nil, nil) {
		switch flag, known := flagOf[err.Field]; {
		case err.Field == "format":
			p.oneOf("logging-format", o.config.Format, logsapi.DefaultLogFormat, logsapi.JSONLogFormat)
		case err.Field == "flushFrequency":
			p.positive("log-flush-frequency", o.config.FlushFrequency.Duration.Duration)
		case known:
			p = append(p, fmt.Errorf("--%s: %s", flag, err.ErrorBody()))
		default:
			// vmodule, or one entry of it: vmodule[0].
			p = append(p, fmt.Errorf("--vmodule: %s", err.ErrorBody()))
		}
	}
	return p
}

// apply makes the configuration that of the whole process. It is called once,
// before anything logs.
func (o *LogOptions) apply() error {
	return logsapi.ValidateAndApply(o.config, nil)
}
