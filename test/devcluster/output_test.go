// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
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

func TestComplaints(t *testing.T) {
	t.Parallel()
	expected := regexp.MustCompile("meant to be")
	cases := map[string]struct {
		reason  string
		printed string
		want    []string
	}{
		"Info":     {reason: "not a complaint", printed: `I1121 11:03:59.883642   21239 run.go:1] "Error in an Info line"`},
		"Warning":  {reason: "a warning is no failure", printed: `W1121 11:03:59.883642   21239 run.go:1] "Look"`},
		"NotKlog":  {reason: "net/http has a logger of its own", printed: "2026/11/21 11:05:03 http: TLS handshake error: EOF"},
		"Error":    {printed: `E1121 11:03:59.883642   21239 run.go:1] "A"`, want: []string{`E1121 11:03:59.883642   21239 run.go:1] "A"`}},
		"Fatal":    {printed: `F1121 11:03:59.883642   21239 run.go:1] "A"`, want: []string{`F1121 11:03:59.883642   21239 run.go:1] "A"`}},
		"Expected": {reason: "the caller knows it", printed: `E1121 11:03:59.883642   21239 run.go:1] "It is meant to be"`},
		"CutOffAnswer": {
			reason:  "an answer was on its way at the end",
			printed: `E1121 11:03:59.883642   21239 request.go:1196] "Unexpected error when reading response body" err="context canceled"`,
		},
		"BrokenAnswer": {
			reason:  "that is not the end",
			printed: `E1121 request.go:1196] "Unexpected error when reading response body" err="unexpected EOF"`,
			want:    []string{`E1121 request.go:1196] "Unexpected error when reading response body" err="unexpected EOF"`},
		},
		"CutOffRenewal": {
			reason:  "the lease was being renewed at the end",
			printed: `E1121 13:22:40.256784   31977 leaderelection.go:461] "Error retrieving lease lock" err="context canceled" lock="a"`,
		},
		"CutOffList": {
			reason:  "client-go says so of a first list that the end overtakes",
			printed: `E1121 11:03:59.883642   21239 shared_informer.go:405] "Unable to sync caches" logger="UnhandledError"`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			printed := fmt.Sprintf("I1121 first line\n%s\nI1121 last line\n", tc.printed)
			if diff := cmp.Diff(tc.want, Complaints(printed, expected), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
