// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"net/http"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/transport"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
)

// TestLowerLevels covers the levels at which client-go would log tokens. That none
// is logged by the whole process is what the integration tests hold it to.
func TestLowerLevels(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		args        []string
		want        logsapi.VerbosityLevel
		wantVModule logsapi.VModuleConfiguration
		lowered     bool
	}{
		"Default": {},
		"Highest": {args: []string{"--v=7"}, want: 7},
		"Bodies":  {args: []string{"--v=8"}, want: 7, lowered: true},
		"OneFile": {
			args:        []string{"--v=2", "--vmodule=loop=5,request=10"},
			want:        2,
			wantVModule: logsapi.VModuleConfiguration{{FilePattern: "loop", Verbosity: 5}, {FilePattern: "request", Verbosity: 7}},
			lowered:     true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, lowered := lowerLevels(clitest.Parse(t, tc.args...).Logs.Config)
			if got.Verbosity != tc.want || lowered != tc.lowered {
				t.Errorf("the level is %d, lowered %v, want %d, %v", got.Verbosity, lowered, tc.want, tc.lowered)
			}
			if diff := cmp.Diff(tc.wantVModule, got.VModule); diff != "" {
				t.Errorf("by file (-want +got):\n%s", diff)
			}
		})
	}
}

// TestLevelsOfRequests holds what is said of the levels 6 and 7 to client-go, which has them.
func TestLevelsOfRequests(t *testing.T) {
	t.Parallel()
	const wholeURL = "https://apiserver/api/v1/namespaces"
	cases := map[string]struct {
		level       int
		said        string // of the level
		want, never []string
	}{
		"Sync":     {level: 5, said: "4 every retried sync", never: []string{wholeURL}},
		"Requests": {level: 6, said: "6 every request to the API server with its status and duration", want: []string{wholeURL, `"status"=`, `"milliseconds"=`}, never: []string{"headers"}},
		"Headers":  {level: 7, said: "7 the headers of these requests", want: []string{wholeURL, `"status"=`, `"milliseconds"=`, `"headers"=`, "Accept"}, never: []string{"Content-Type", "secret"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log strings.Builder
			logger := funcr.New(func(_, line string) { log.WriteString(line + "\n") }, funcr.Options{Verbosity: tc.level})
			request, err := http.NewRequestWithContext(klog.NewContext(t.Context(), logger), http.MethodGet, wholeURL, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			request.Header = http.Header{"Accept": {"application/json"}, "Authorization": {"Bearer secret"}}
			response, err := transport.NewDebuggingRoundTripper(answer{}, transport.DebugByContext).RoundTrip(request)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			for _, want := range tc.want {
				if !strings.Contains(log.String(), want) {
					t.Errorf("it does not log %q:\n%s", want, &log)
				}
			}
			for _, never := range tc.never {
				if strings.Contains(log.String(), never) {
					t.Errorf("it logs %q:\n%s", never, &log)
				}
			}
			if usage := options.New().Flags().FlagSets["log"].Lookup("v").Usage; !strings.Contains(usage, tc.said) {
				t.Errorf("the help does not say %q: %s", tc.said, usage)
			}
		})
	}
}

// answer is the one to every request.
type answer struct{}

func (answer) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
}
