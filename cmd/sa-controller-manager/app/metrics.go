// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

// Each of these registers a family of metrics under the names that dashboards
// for Kubernetes components expect: rest_client_*, workqueue_*,
// leader_election_master_status, and kubernetes_build_info.
import (
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
)
