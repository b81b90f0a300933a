// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/component-base/metrics"
)

// Metrics are upstream's, so that what watches kube-controller-manager goes on
// (pkg/controller/certificates/rootcacertpublisher/metrics.go).
type Metrics struct {
	syncs    *metrics.CounterVec
	duration *metrics.HistogramVec
}

// NewMetrics registers the series with mustRegister, such as legacyregistry.MustRegister.
func NewMetrics(mustRegister func(...metrics.Registerable)) *Metrics {
	const subsystem = "root_ca_cert_publisher"
	m := &Metrics{
		syncs: metrics.NewCounterVec(&metrics.CounterOpts{
			Subsystem:      subsystem,
			Name:           "sync_total",
			Help:           "Syncs of a namespace by the publisher of kube-root-ca.crt, by HTTP status code.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"code"}),
		duration: metrics.NewHistogramVec(&metrics.HistogramOpts{
			Subsystem:      subsystem,
			Name:           "sync_duration_seconds",
			Help:           "Time of the syncs of a namespace by the publisher of kube-root-ca.crt, by HTTP status code.",
			Buckets:        metrics.ExponentialBuckets(0.001, 2, 15),
			StabilityLevel: metrics.ALPHA,
		}, []string{"code"}),
	}
	mustRegister(m.syncs, m.duration)
	return m
}

// observe counts one sync. A nil Metrics counts nothing.
func (m *Metrics) observe(took time.Duration, err error) {
	if m == nil {
		return
	}
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
