// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"fmt"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Metrics are the metric families of one scrape, by name.
type Metrics map[string]*dto.MetricFamily

// Labels select series: each label named must have the value given. No labels
// select every series of a metric.
type Labels map[string]string

// parseMetrics reads the Prometheus text format.
func parseMetrics(text string) (Metrics, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("parse metrics: %w", err)
	}
	return families, nil
}

// Sum adds up the series of that name with those labels. A histogram or summary
// counts as its number of observations. No series at all is 0.
func (m Metrics) Sum(name string, labels Labels) float64 {
	var sum float64
	for _, series := range m[name].GetMetric() {
		if matches(series, labels) {
			sum += value(series)
		}
	}
	return sum
}

func matches(series *dto.Metric, labels Labels) bool {
	matched := 0
	for _, pair := range series.GetLabel() {
		if want, ok := labels[pair.GetName()]; ok && want == pair.GetValue() {
			matched++
		}
	}
	return matched == len(labels)
}

// value is that of the one kind the series has; the others are zero.
func value(series *dto.Metric) float64 {
	return series.GetCounter().GetValue() +
		series.GetGauge().GetValue() +
		series.GetUntyped().GetValue() +
		float64(series.GetHistogram().GetSampleCount()) +
		float64(series.GetSummary().GetSampleCount())
}
