// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"net/http"

	"k8s.io/component-base/metrics/prometheus/slis"
)

// installSLIs serves the outcome of the health checks. In other components a kubelet's
// probes keep that fresh; in the Deployment ours ask another port. So whoever scrapes
// has the checks made first, which costs nothing: they answer from memory.
func installSLIs(mux *http.ServeMux, health []*healthHandler) {
	slis.SLIMetricsWithReset{}.Install(checkedFirst{mux, health})
}

// checkedFirst is a mux whose handlers find the health checks just made.
type checkedFirst struct {
	mux    *http.ServeMux
	health []*healthHandler
}

// Handle is http.ServeMux's. A DELETE is for the reset and checks nothing.
func (c checkedFirst) Handle(path string, handler http.Handler) {
	c.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			for _, h := range c.health {
				examine(h.endpoint, h.checks, nil)
			}
		}
		handler.ServeHTTP(w, r)
	})
}
