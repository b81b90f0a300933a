// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package series makes metrics with a name, a help text and labels, and registers each immediately. A second one
// of a name panics, as with MustRegister.
package series

import "k8s.io/component-base/metrics"

// Register registers metrics, such as legacyregistry.MustRegister. With nil none is shown.
type Register = func(...metrics.Registerable)

// Counter counts.
func Counter(register Register, name, help string) *metrics.Counter {
	return registered(register, metrics.NewCounter(&metrics.CounterOpts{Name: name, Help: help}))
}

// CounterVec counts by labels.
func CounterVec(register Register, name, help string, labels ...string) *metrics.CounterVec {
	return registered(register, metrics.NewCounterVec(&metrics.CounterOpts{Name: name, Help: help}, labels))
}

// Gauge shows a value.
func Gauge(register Register, name, help string) *metrics.Gauge {
	return registered(register, metrics.NewGauge(&metrics.GaugeOpts{Name: name, Help: help}))
}

// GaugeVec shows values by labels.
func GaugeVec(register Register, name, help string, labels ...string) *metrics.GaugeVec {
	return registered(register, metrics.NewGaugeVec(&metrics.GaugeOpts{Name: name, Help: help}, labels))
}

// HistogramVec shows, by labels, how values are distributed over buckets.
func HistogramVec(register Register, name, help string, buckets []float64, labels ...string) *metrics.HistogramVec {
	return registered(register, metrics.NewHistogramVec(&metrics.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels))
}

// GaugeFunc shows what value returns when it is scraped.
func GaugeFunc(registry metrics.KubeRegistry, name, help string, value func() float64) {
	registry.RawMustRegister(metrics.NewGaugeFunc(&metrics.GaugeOpts{Name: name, Help: help}, value))
}

// Bool is the value of a gauge for a fact: 1 or 0.
func Bool(fact bool) float64 {
	if fact {
		return 1
	}
	return 0
}

func registered[M metrics.Registerable](register Register, metric M) M {
	if register != nil {
		register(metric)
	}
	return metric
}
