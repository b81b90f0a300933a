// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

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

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/version"
)

// newHandler is the one place where paths are laid out: those of KCM, but for
// /debug/flags/v. That one sets the log level, and from level 8 on client-go logs
// tokens (see maxLogLevel).
func newHandler(o *options.Options, live, ready []Check) http.Handler {
	mux := http.NewServeMux()
	// A failed /livez is a broken process, as in every Kubernetes component; a
	// failed /readyz is one that cannot serve yet.
	health := []*healthHandler{
		{endpoint: "healthz", failureStatus: http.StatusInternalServerError, checks: live},
		{endpoint: "livez", failureStatus: http.StatusInternalServerError, checks: live},
		{endpoint: "readyz", failureStatus: http.StatusServiceUnavailable, checks: ready},
	}
	for _, h := range health {
		mux.Handle("/"+h.endpoint, h)
		mux.Handle("/"+h.endpoint+"/{check}", h)
	}
	mux.Handle("GET /metrics", legacyregistry.Handler())
	installSLIs(mux, health)
	mux.Handle("GET /configz", configz(o))
	flagz.Install(mux, options.ProgramName, flagz.NamedFlagSetsReader{FlagSets: o.Flags()})
	statusz.Install(mux, options.ProgramName, statusz.NewRegistry(effectiveVersion(version.Info().GitVersion),
		statusz.WithListedPaths([]string{"/configz", "/flagz", "/healthz", "/livez", "/metrics", "/metrics/slis", "/readyz", "/statusz"})))
	installProfiles(&o.Debugging, mux)
	return mux
}

// configz answers with what the flags have decided, under the name of the program
// as in every Kubernetes component. options.Options hold paths and names, never a secret.
func configz(o *options.Options) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		body, err := json.Marshal(map[string]*options.Options{options.ProgramName: o})
		if err != nil {
			http.Error(w, "encode the options: "+err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		// A client that went away is no news.
		_, _ = w.Write(body)
	})
}

// effectiveVersion is what /statusz shows. The library cannot read the version of a
// build without one.
func effectiveVersion(text string) compatibility.EffectiveVersion {
	binary, err := utilversion.ParseSemantic(text)
	if err != nil {
		binary = utilversion.MajorMinor(0, 0)
	}
	return compatibility.NewEffectiveVersion(binary, false, binary, binary)
}

// installProfiles adds profiles, if they are wanted.
func installProfiles(o *options.Debugging, mux *http.ServeMux) {
	if !o.Profiling {
		return
	}
	if o.ContentionProfiling {
		runtime.SetBlockProfileRate(1)
	}
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
}
