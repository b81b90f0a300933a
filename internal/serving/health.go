// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"k8s.io/component-base/metrics/prometheus/slis"
	"k8s.io/klog/v2"
)

// Check is one named health check.
type Check struct {
	// Name is used in ?exclude= and in the path below the endpoint: lower case words joined by
	// hyphens, unique within an endpoint.
	Name string
	// Probe must not block; it is called concurrently. Verbose output shows the detail, whether the
	// check passes or fails, and the error: health paths need no permission, so neither may contain
	// a secret. An empty detail is omitted.
	Probe func() (detail string, err error)
}

// healthHandler serves one health endpoint in the format of Kubernetes: "ok",
// or one line a check with ?verbose or when one fails. It also serves each
// check on its own, at /<endpoint>/<check>.
type healthHandler struct {
	endpoint string
	// failureStatus is the HTTP status when a check fails.
	failureStatus int
	checks        []Check
}

func (h *healthHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	query := r.URL.Query()
	checks, excluded := h.checks, query["exclude"]
	passed, failed := h.endpoint+" check passed\n", h.endpoint+" check failed\n"
	if name := r.PathValue("check"); name != "" {
		i := slices.IndexFunc(h.checks, func(c Check) bool { return c.Name == name })
		if i < 0 {
			http.NotFound(w, r)
			return
		}
		checks, excluded = h.checks[i:i+1], nil
		passed, failed = "", "" // its one line says all
	}
	switch rep := examine(h.endpoint, checks, excluded); {
	case len(rep.failed) > 0:
		klog.FromContext(r.Context()).V(2).Info("Health check failed", "endpoint", h.endpoint, "checks", rep.failed)
		respond(w, h.failureStatus, rep.text()+failed)
	case query.Has("verbose"):
		respond(w, http.StatusOK, rep.text()+passed)
	default:
		respond(w, http.StatusOK, "ok")
	}
}

func respond(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	// The client may have disconnected.
	_, _ = io.WriteString(w, body)
}

// healthReport is the outcome of some checks.
type healthReport struct {
	// lines has one line a check, in their order, and perhaps a warning.
	lines []string
	// failed lists the names of failed checks.
	failed []string
}

func (r healthReport) text() string {
	return strings.Join(r.lines, "\n") + "\n"
}

// examine runs the checks that are not excluded.
func examine(endpoint string, checks []Check, excluded []string) healthReport {
	var rep healthReport
	names := make([]string, 0, len(checks))
	for _, c := range checks {
		names = append(names, c.Name)
		if slices.Contains(excluded, c.Name) {
			rep.lines = append(rep.lines, fmt.Sprintf("[+]%s excluded: ok", c.Name))
			continue
		}
		detail, err := c.Probe()
		observe(endpoint, c.Name, err)
		if err != nil {
			rep.failed = append(rep.failed, c.Name)
		}
		rep.lines = append(rep.lines, checkLine(c.Name, detail, err))
	}
	if unknown := quoteMissing(excluded, names); len(unknown) > 0 {
		rep.lines = append(rep.lines, "warn: some health checks cannot be excluded: no matches for "+strings.Join(unknown, ","))
	}
	return rep
}

// observe counts the outcome in /metrics/slis.
func observe(endpoint, name string, err error) {
	status := slis.Success
	if err != nil {
		status = slis.Error
	}
	// It never returns an error (k8s.io/component-base/metrics/prometheus/slis).
	_ = slis.ObserveHealthcheck(context.Background(), name, endpoint, status)
}

// checkLine returns the result of a check in one line, because scripts read these lines.
func checkLine(name, detail string, err error) string {
	line := fmt.Sprintf("[+]%s ok", name)
	switch {
	case err != nil && detail != "":
		line = fmt.Sprintf("[-]%s failed: %v (%s)", name, err, detail)
	case err != nil:
		line = fmt.Sprintf("[-]%s failed: %v", name, err)
	case detail != "":
		line = fmt.Sprintf("[+]%s ok: %s", name, detail)
	}
	return strings.ReplaceAll(strings.TrimRight(line, "\r\n"), "\n", "; ")
}

// quoteMissing returns those of wanted that are not in have, quoted.
func quoteMissing(wanted, have []string) []string {
	var missing []string
	for _, name := range wanted {
		if !slices.Contains(have, name) {
			missing = append(missing, strconv.Quote(name))
		}
	}
	return missing
}
