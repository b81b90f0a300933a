// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"encoding/json"
	"net/http"
	"net/http/pprof"
	"runtime"

	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/server/flagz"
	"k8s.io/apiserver/pkg/server/statusz"
	"k8s.io/component-base/compatibility"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/prometheus/slis"
)

// newHandler defines all paths: those of KCM, except /debug/flags/v. That one sets the log level,
// and from level 8 on client-go logs tokens.
func newHandler(config *Config) http.Handler {
	mux := http.NewServeMux()
	// A failed /livez is a broken process, as in every Kubernetes component; a
	// failed /readyz is one that cannot serve yet.
	health := []*healthHandler{
		{endpoint: "healthz", failureStatus: http.StatusInternalServerError, checks: config.Live},
		{endpoint: "livez", failureStatus: http.StatusInternalServerError, checks: config.Live},
		{endpoint: "readyz", failureStatus: http.StatusServiceUnavailable, checks: config.Ready},
	}
	for _, h := range health {
		mux.Handle("/"+h.endpoint, h)
		mux.Handle("/"+h.endpoint+"/{check}", h)
	}
	mux.Handle("GET /metrics", legacyregistry.Handler())
	mux.Handle("/metrics/slis", sliHandler(health))
	mux.Handle("GET /configz", configz(config))
	flagz.Install(mux, config.Name, flagz.NamedFlagSetsReader{FlagSets: config.Flags})
	statusz.Install(mux, config.Name, statusz.NewRegistry(effectiveVersion(config.Version),
		statusz.WithListedPaths([]string{"/configz", "/flagz", "/healthz", "/livez", "/metrics", "/metrics/slis", "/readyz", "/statusz"})))
	installProfiles(config, mux)
	return mux
}

// sliHandler runs the health checks and serves their results as metrics. In other components the
// kubelet's probes keep these fresh; in our Deployment the probes use another port, and alerts
// depend on the results.
func sliHandler(health []*healthHandler) http.Handler {
	outcomes := http.NewServeMux()
	slis.SLIMetricsWithReset{}.Install(outcomes)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, h := range health {
			examine(h.endpoint, h.checks, nil)
		}
		outcomes.ServeHTTP(w, r)
	})
}

// configz serves the effective options, under the name of the program as in every Kubernetes
// component. They are paths and names, never a secret.
func configz(config *Config) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		body, err := json.Marshal(map[string]any{config.Name: config.Options})
		if err != nil {
			http.Error(w, "encode the options: "+err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		// The client may have disconnected.
		_, _ = w.Write(body)
	})
}

// effectiveVersion returns the version for /statusz. The library cannot parse the version of a
// build without one.
func effectiveVersion(text string) compatibility.EffectiveVersion {
	binary, err := utilversion.ParseSemantic(text)
	if err != nil {
		binary = utilversion.MajorMinor(0, 0)
	}
	return compatibility.NewEffectiveVersion(binary, false, binary, binary)
}

// installProfiles adds the profiling paths, if they are enabled.
func installProfiles(config *Config, mux *http.ServeMux) {
	if !config.Profiling {
		return
	}
	if config.ContentionProfiling {
		runtime.SetBlockProfileRate(1)
	}
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
}
