// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"errors"
	"net/http"
	"time"

	"k8s.io/component-base/metrics"

	"sa-controller-manager/internal/series"
)

// Outcomes of a call. A refusal is the response to a bad object; an error is a
// failure of the webhook, or temporary.
const (
	outcomeAllowed = "allowed"
	outcomePatched = "patched"
	outcomeRefused = "refused"
	outcomeError   = "error"
	// outcomeInvalid and outcomeOverload are calls that did not reach the plugin.
	outcomeInvalid  = "invalid"
	outcomeOverload = "overload"
)

// Metrics are the metrics of the webhook. It is safe for concurrent use.
type Metrics struct {
	requests *metrics.CounterVec
	duration *metrics.HistogramVec
	inFlight *metrics.Gauge
	evicted  *metrics.Counter
	tls      *metrics.CounterVec
}

// NewMetrics registers the metrics with mustRegister, such as legacyregistry.MustRegister.
func NewMetrics(mustRegister func(...metrics.Registerable)) *Metrics {
	return &Metrics{
		requests: series.CounterVec(mustRegister, "sacm_webhook_requests_total",
			"Webhook calls by path and outcome. Calls with outcome invalid or overload did not reach the plugin.", "path", "outcome"),
		duration: series.HistogramVec(mustRegister, "sacm_webhook_request_duration_seconds",
			"Time from the first byte of a webhook call to its response, including waiting.",
			[]float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}, "path"),
		inFlight: series.Gauge(mustRegister, "sacm_webhook_requests_in_flight",
			"Webhook calls that are being decided, after their body has arrived."),
		evicted: series.Counter(mustRegister, "sacm_webhook_connections_evicted_total",
			"Connections to the webhook that were closed for a new one, because there were too many. A call on one of them fails."),
		tls: series.CounterVec(mustRegister, "sacm_webhook_tls_handshake_errors_total",
			"Failed TLS handshakes by reason. With certificate_refused the caller refused the serving certificate, and its "+
				"call failed.", "reason"),
	}
}

// requestEnds records a call that began at start.
func (m *Metrics) requestEnds(path, outcome string, start time.Time) {
	m.requests.WithLabelValues(path, outcome).Inc()
	m.duration.WithLabelValues(path).Observe(time.Since(start).Seconds())
}

func outcomeOf(response *Response, err error) string {
	if err == nil {
		if len(response.Patch) > 0 {
			return outcomePatched
		}
		return outcomeAllowed
	}
	if _, early := errors.AsType[notReadyError](err); early {
		return outcomeError
	}
	if code := statusOf(err).Code; code >= http.StatusInternalServerError || code == http.StatusTooManyRequests {
		return outcomeError
	}
	return outcomeRefused
}
