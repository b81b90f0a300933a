// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // the "json" log format
	"k8s.io/component-base/metrics"
)

// Debugging has the flags of the profiling handlers of the secure port.
type Debugging struct{ Profiling, ContentionProfiling bool }

// AddFlags binds the group to fs.
func (o *Debugging) AddFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.Profiling, "profiling", o.Profiling, "Serve profiles at /debug/pprof/, behind authorization.")
	fs.BoolVar(&o.ContentionProfiling, "contention-profiling", o.ContentionProfiling,
		"Enable block profiling. Without effect without --profiling.")
	fs.VisitAll(func(f *pflag.Flag) { SetOrigin(fs, asKCM, f.Name) })
}

// Validate returns every problem of the group.
func (o *Debugging) Validate() []error { return nil }

// Metrics has the flags with which every Kubernetes component limits metrics that cost too much.
type Metrics struct {
	Config *metrics.Options
}

// AddFlags binds the group to fs.
func (o *Metrics) AddFlags(fs *pflag.FlagSet) {
	o.Config.AddFlags(fs)
	fs.VisitAll(func(f *pflag.Flag) { SetOrigin(fs, asKCM, f.Name) })
	for name, usage := range map[string]string{
		"show-hidden-metrics-for-version": "Show hidden deprecated metrics. Any `version` does so.",
		"disabled-metrics":                "Full `names` of metrics to disable.",
		"allow-metric-labels": "Allowed values of a label of a metric, as `metric,label=value,value`; others become " +
			"\"unexpected\".",
		"allow-metric-labels-manifest": "YAML `file` with the content of --allow-metric-labels, which takes precedence.",
	} {
		fs.Lookup(name).Usage = usage
	}
	SetOrigin(fs, asKCM+", which accepts only its previous version", "show-hidden-metrics-for-version")
}

// Validate returns every problem of the group.
func (o *Metrics) Validate() []error {
	var p Problems
	for key := range o.Config.AllowListMapping {
		if metric, label, found := strings.Cut(key, ","); !found || metric == "" || label == "" {
			p.Add("allow-metric-labels", key, "must have the form metric,label")
		}
	}
	return p
}

// MarshalJSON returns the configuration for /configz.
func (o *Metrics) MarshalJSON() ([]byte, error) {
	return json.Marshal(o.Config.MetricsConfiguration)
}

// Logs is the logging configuration of every Kubernetes component.
type Logs struct {
	Config *logsapi.LoggingConfiguration
}

// AddFlags binds the group to fs.
func (o *Logs) AddFlags(fs *pflag.FlagSet) {
	logsapi.AddFlags(o.Config, fs)
	for name, usage := range logUsages() {
		fs.Lookup(name).Usage = usage
	}
	fs.VisitAll(func(f *pflag.Flag) { SetOrigin(fs, asKCM, f.Name) })
	// These need the feature gate LoggingAlphaOptions, and this binary has no feature gates. They are
	// accepted so that the error says so.
	for name := range logAlphaFields() {
		_ = fs.MarkHidden(name)
	}
}

// logUsages replaces the texts of component-base, which do not describe our log levels and say that
// the "json" format needs a feature gate.
func logUsages() map[string]string {
	return map[string]string{
		"logging-format":      fmt.Sprintf("Format of the log: %q or %q.", logsapi.DefaultLogFormat, logsapi.JSONLogFormat),
		"log-flush-frequency": "Longest time between two flushes of the log.",
		"v": "Log `level`: 0 logs what an operator must know, 2 every changed object, 4 every sync, 6 every request to kube-apiserver. " +
			"Levels above 7 are lowered to it, because client-go would log tokens.",
		"vmodule": "Log levels by source file, as `pattern=N,...`; only in text format.",
	}
}

// logAlphaFields maps the flags that only allow their default to the configuration fields that they
// set.
func logAlphaFields() map[string]string {
	return map[string]string{
		"log-text-split-stream":     "options.text.splitStream",
		"log-text-info-buffer-size": "options.text.infoBufferSize",
		"log-json-split-stream":     "options.json.splitStream",
		"log-json-info-buffer-size": "options.json.infoBufferSize",
	}
}

// MarshalJSON returns the configuration for /configz.
func (o *Logs) MarshalJSON() ([]byte, error) { return json.Marshal(o.Config) }

// Validate returns every problem of the group.
func (o *Logs) Validate() []error {
	flagOf := map[string]string{"verbosity": "v"}
	for flag, field := range logAlphaFields() {
		flagOf[field] = flag
	}
	var p Problems
	for _, err := range logsapi.Validate(o.Config, nil, nil) {
		switch flag, known := flagOf[err.Field]; {
		case err.Field == "format":
			p.OneOf("logging-format", o.Config.Format, logsapi.DefaultLogFormat, logsapi.JSONLogFormat)
		case err.Field == "flushFrequency":
			p.Positive("log-flush-frequency", o.Config.FlushFrequency.Duration.Duration)
		case known:
			p = append(p, fmt.Errorf("--%s: %s", flag, err.ErrorBody()))
		default:
			// vmodule, or one entry of it: vmodule[0].
			p = append(p, fmt.Errorf("--vmodule: %s", err.ErrorBody()))
		}
	}
	return p
}
