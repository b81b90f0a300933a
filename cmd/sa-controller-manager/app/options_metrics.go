// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/component-base/metrics"
)

// MetricsOptions are the emergency brakes that every Kubernetes component has for
// metrics that cost too much.
type MetricsOptions struct {
	config *metrics.Options
}

func newMetricsOptions() MetricsOptions {
	return MetricsOptions{config: metrics.NewOptions()}
}

// AddFlags binds the group to fs.
func (o *MetricsOptions) AddFlags(fs *pflag.FlagSet) {
	o.config.AddFlags(fs)
	fs.VisitAll(func(f *pflag.Flag) { setOrigin(fs, asKCM, f.Name) })
	for name, usage := range map[string]string{
		"show-hidden-metrics-for-version": "Show metrics that are deprecated and hidden by now. Any `version` does; it is not compared with anything.",
		"disabled-metrics":                "Full `names` of metrics to leave out.",
		"allow-metric-labels":             "Values that a label of a metric may have, as `metric,label=value,value`; others are counted as \"unexpected\".",
		"allow-metric-labels-manifest":    "YAML `file` with the same as --allow-metric-labels, which goes before it.",
	} {
		fs.Lookup(name).Usage = usage
	}
	setOrigin(fs, asKCM+", which takes its last version only", "show-hidden-metrics-for-version")
}

// Validate returns every problem of the group.
func (o *MetricsOptions) Validate() []error {
	var p problems
	for key := range o.config.AllowListMapping {
		if metric, label, found := strings.Cut(key, ","); !found || metric == "" || label == "" {
			p.add("allow-metric-labels", key, "must have the form metric,label")
		}
	}
	return p
}

// apply makes the options those of the whole process. It is called once, before any
// metric is registered.
func (o *MetricsOptions) apply() {
	if o.config.ShowHiddenMetricsForVersion != "" {
		metrics.SetShowHidden()
	}
	metrics.SetDisabledMetrics(o.config.DisabledMetrics)
	if len(o.config.AllowListMapping) > 0 {
		metrics.SetLabelAllowList(o.config.AllowListMapping)
		return
	}
	if o.config.AllowListMappingManifest != "" {
		metrics.SetLabelAllowListFromManifest(o.config.AllowListMappingManifest)
	}
}
