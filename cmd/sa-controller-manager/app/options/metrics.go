// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"encoding/json"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/component-base/metrics"
)

// Metrics has the flags with which every Kubernetes component limits metrics that cost too much.
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
		"show-hidden-metrics-for-version": "Show hidden deprecated metrics. Any `version` does so.",
		"disabled-metrics":                "Full `names` of metrics to disable.",
		"allow-metric-labels":             "Allowed values of a label of a metric, as `metric,label=value,value`; others become \"unexpected\".",
		"allow-metric-labels-manifest":    "YAML `file` with the content of --allow-metric-labels, which takes precedence.",
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
