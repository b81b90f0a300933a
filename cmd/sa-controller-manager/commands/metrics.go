// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"k8s.io/component-base/metrics"
	// These two register metrics under the names that dashboards for Kubernetes components
	// expect: rest_client_*, workqueue_* and leader_election_master_status,
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	// and kubernetes_build_info.
	_ "k8s.io/component-base/metrics/prometheus/version"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
)

// applyMetrics makes the options those of the whole process. It is called once, before any
// metric is registered.
func applyMetrics(o *options.Metrics) {
	if o.Config.ShowHiddenMetricsForVersion != "" {
		metrics.SetShowHidden()
	}
	metrics.SetDisabledMetrics(o.Config.DisabledMetrics)
	if len(o.Config.AllowListMapping) > 0 {
		metrics.SetLabelAllowList(o.Config.AllowListMapping)
		return
	}
	if o.Config.AllowListMappingManifest != "" {
		metrics.SetLabelAllowListFromManifest(o.Config.AllowListMappingManifest)
	}
}
