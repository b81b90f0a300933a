// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"encoding/json"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/component-base/metrics"
)

// Metrics are the emergency brakes that every Kubernetes component has for
// metrics that cost too much.
type Metrics struct {
	Config *metrics.Options
}

func newMetrics() Metrics {
	return Metrics{Config: metrics.NewOptions()}
}

// AddFlags binds the group to fs.
func (o *Metrics) AddFlags(fs *pflag.FlagSet) {
	o.Config.AddFlags(fs)
	fs.VisitAll(func(f *pflag.Flag) { SetOrigin(fs, asKCM, f.Name) })
	for name, usage := range map[string]string{
		"show-hidden-metrics-for-version": "Show metrics that are deprecated and hidden by now. Any `version` does; it is not compared with anything.",
		"disabled-metrics":                "Full `names` of metrics to leave out.",
		"allow-metric-labels":             "Values that a label of a metric may have, as `metric,label=value,value`; others are counted as \"unexpected\".",
		"allow-metric-labels-manifest":    "YAML `file` with the same as --allow-metric-labels, which goes before it.",
	} {
		fs.Lookup(name).Usage = usage
	}
	SetOrigin(fs, asKCM+", which takes its last version only", "show-hidden-metrics-for-version")
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

// MarshalJSON is for /configz, as that of Logs.
func (o *Metrics) MarshalJSON() ([]byte, error) {
	return json.Marshal(o.Config.MetricsConfiguration)
}
