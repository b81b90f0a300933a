// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
)

// givenFlags are some flags, each with a value that is not its default.
func givenFlags() map[string]string {
	return map[string]string{
		"pod-token":                   "secret",
		"webhook-timeout":             "7s",
		"service-account-issuer":      "[https://a]",
		"feature-gates":               ":A=true",
		"tls-sni-cert-key":            "[a.crt,a.key]",
		"v":                           "3",
		"concurrent-deployment-syncs": "5",
	}
}

// parseGiven is parse of givenFlags. Brackets are how a list is shown.
func parseGiven(t *testing.T) *options.Options {
	t.Helper()
	var args []string
	for name, value := range givenFlags() {
		args = append(args, "--"+name+"="+strings.Trim(value, "[]:"))
	}
	return parse(t, args...)
}

// page is what path answers.
func page(t *testing.T, o *options.Options, path string) string {
	t.Helper()
	answer := httptest.NewRecorder()
	newHandler(o, nil, nil).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
	if answer.Code != http.StatusOK {
		t.Fatalf("%s answers %d: %s", path, answer.Code, answer.Body)
	}
	return answer.Body.String()
}

// configOf is what /configz shall show of o.
func configOf(o *options.Options) string {
	answer := httptest.NewRecorder()
	configz(o).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/configz", nil))
	return answer.Body.String()
}

// TestDebugPagesShowWhatWasGiven: binding a field to a flag writes the flag's default into it, so that whoever binds them again
// can undo the command line.
func TestDebugPagesShowWhatWasGiven(t *testing.T) {
	t.Parallel()
	o := parseGiven(t)
	want := configOf(o)
	if diff := cmp.Diff(want, page(t, o, "/configz")); diff != "" {
		t.Errorf("/configz (-want +got):\n%s", diff)
	}

	shown := map[string]string{}
	// The library draws the separator.
	for _, line := range regexp.MustCompile(`(?m)^([\w-]+)(?:: |[:= ])(.*)$`).FindAllStringSubmatch(page(t, o, "/flagz"), -1) {
		if _, given := givenFlags()[line[1]]; given {
			shown[line[1]] = line[2]
		}
	}
	if diff := cmp.Diff(givenFlags(), shown); diff != "" {
		t.Errorf("/flagz (-want +got):\n%s", diff)
	}
}
