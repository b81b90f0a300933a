// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

// Each import registers a family of metrics under the names that dashboards for
// Kubernetes components expect.
import (
	// rest_client_*, workqueue_* and leader_election_master_status.
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	// kubernetes_build_info.
	_ "k8s.io/component-base/metrics/prometheus/version"
)
