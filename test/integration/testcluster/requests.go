// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"testing"

	"sa-controller-manager/test/devcluster"
)

// RequestCounts counts requests for Secrets and accounts, by verb and resource. It leaves out lists
// and watches, which the tests send too.
type RequestCounts map[string]float64

// CountRequests reads the counts from kube-apiserver's metrics.
func (c *ControlPlane) CountRequests(t *testing.T) RequestCounts {
	t.Helper()
	metrics, err := c.APIServerMetrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	counts := RequestCounts{}
	for _, resource := range []string{"secrets", "serviceaccounts", "events"} {
		for _, verb := range []string{"GET", "POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"} {
			if n := metrics.Sum("apiserver_request_total", devcluster.Labels{"verb": verb, "resource": resource}); n > 0 {
				counts[verb+" "+resource] = n
			}
		}
	}
	return counts
}
