// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"testing"
)

const scrape = `
# TYPE requests_total counter
requests_total{verb="GET",resource="secrets"} 2
requests_total{verb="GET",resource="serviceaccounts"} 3
requests_total{verb="PUT",resource="secrets"} 5
# TYPE latency histogram
latency_bucket{le="1"} 6
latency_bucket{le="+Inf"} 7
latency_sum 4
latency_count 7
# TYPE ready gauge
ready 0
`

func TestMetricsSum(t *testing.T) {
	t.Parallel()
	metrics, err := parseMetrics(scrape)
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		name   string
		labels Labels
		want   float64
		has    bool
	}{
		"all series":    {name: "requests_total", want: 10, has: true},
		"one label":     {name: "requests_total", labels: Labels{"verb": "GET"}, want: 5, has: true},
		"two labels":    {name: "requests_total", labels: Labels{"verb": "GET", "resource": "secrets"}, want: 2, has: true},
		"no such label": {name: "requests_total", labels: Labels{"code": "200"}},
		"histogram":     {name: "latency", want: 7, has: true},
		"zero":          {name: "ready", want: 0, has: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := metrics.Sum(tc.name, tc.labels); got != tc.want {
				t.Errorf("Sum: want %v, got %v", tc.want, got)
			}
			if got := metrics.Has(tc.name, tc.labels); got != tc.has {
				t.Errorf("Has: want %v, got %v", tc.has, got)
			}
		})
	}
}
