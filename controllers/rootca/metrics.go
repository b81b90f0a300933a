// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/component-base/metrics"

	"sa-controller-manager/internal/series"
)

// Metrics are upstream's for the publisher, so that dashboards and alerts for
// kube-controller-manager still work (pkg/controller/certificates/rootcacertpublisher/metrics.go),
// and one of ours.
type Metrics struct {
	syncs    *metrics.CounterVec
	duration *metrics.HistogramVec
	replaced *metrics.CounterVec
}

// NewMetrics registers the series with mustRegister, such as legacyregistry.MustRegister.
func NewMetrics(mustRegister func(...metrics.Registerable)) *Metrics {
	m := &Metrics{
		syncs: series.CounterVec(mustRegister, "root_ca_cert_publisher_sync_total",
			"Syncs of a namespace by the publisher of kube-root-ca.crt, by HTTP status code.", "code"),
		duration: series.HistogramVec(mustRegister, "root_ca_cert_publisher_sync_duration_seconds",
			"Time of the syncs of a namespace by the publisher of kube-root-ca.crt, by HTTP status code.",
			metrics.ExponentialBuckets(0.001, 2, 15), "code"),
		replaced: series.CounterVec(mustRegister, "sacm_root_ca_replaced_by_others_total",
			"Root CA bundles of this program that another process replaced while the leader watched, in token Secrets (secrets) "+
				"or ConfigMaps kube-root-ca.crt (configmaps), or deleted (clustertrustbundles).", "resource"),
	}
	for _, resource := range []corev1.ResourceName{corev1.ResourceSecrets, corev1.ResourceConfigMaps, trustBundles} {
		m.replaced.WithLabelValues(string(resource)) // an alert needs the zero before the first one
	}
	return m
}

// Replaced counts that another process replaced our bundle in an object of a resource.
func (m *Metrics) Replaced(resource corev1.ResourceName) {
	m.replaced.WithLabelValues(string(resource)).Inc()
}

// observe counts one sync.
func (m *Metrics) observe(took time.Duration, err error) {
	code := strconv.Itoa(codeOf(err))
	m.syncs.WithLabelValues(code).Inc()
	m.duration.WithLabelValues(code).Observe(took.Seconds())
}

func codeOf(err error) int {
	if err == nil {
		return http.StatusOK
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Code != 0 {
		return int(status.Status().Code)
	}
	return http.StatusInternalServerError
}
