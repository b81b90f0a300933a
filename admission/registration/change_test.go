// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/internal/testutil"
)

// TestLeavesTheAPI: in mode static the configurations in the API go, and what they used, once no host needs them.
func TestLeavesTheAPI(t *testing.T) {
	yes := func() bool { return true }
	patch := func(manager, patch string) func(*testing.T, *apiserver) {
		return func(t *testing.T, a *apiserver) {
			t.Helper()
			_, err := a.AdmissionregistrationV1().ValidatingWebhookConfigurations().Patch(t.Context(), Name, types.MergePatchType, []byte(patch),
				metav1.PatchOptions{FieldManager: manager})
			testutil.Must(t, err)
		}
	}
	for name, tc := range map[string]struct {
		reason string
		own    State
		second func() bool // nil for mode url
		change func(*testing.T, *apiserver)
		stays  string
	}{
		"AllLoaded":   {own: Registered, second: yes},
		"OneInURL":    {own: Registered, stays: "no heartbeat with --webhook-registration=static and loaded files from cp-2"},
		"OneNotYet":   {own: Registered, second: func() bool { return false }, stays: "loaded files from cp-2"},
		"NotThisHost": {own: Waiting, second: yes, stays: "waiting"},
		"Changed": {
			reason: "an operator may rely on it", own: Registered, second: yes, change: patch("kubectl", `{"metadata":{"labels":{"a":"b"}}}`),
			stays: "another client has changed",
		},
		"SwitchedOff": {
			reason: "break-glass wins", own: Registered, second: yes,
			change: patch("sa-controller-manager", `{"metadata":{"annotations":{"`+Annotation+`":"off"}}}`), stays: Annotation + "=off",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAPIServer(t)
				a.serve(t, "cp-1")
				before := New(a.config())
				stop, end := start(t, before.Run), start(t, before.Lead)
				pause(time.Second)
				end()
				stop()
				a.expect(t, "mode url was there before", "mutate", "validate")
				if tc.change != nil {
					tc.change(t, a)
				}
				a.serve(t, "cp-2")
				own, second, retired := replica(a, "cp-1"), replica(a, "cp-2"), 0
				second.config.Static = tc.second
				report(t, own)
				report(t, second)
				files := NewStaticFiles(StaticFilesConfig{ServingCA: &staticCA{}})
				files.show(t.Context(), Status{State: tc.own})
				r := run(t, a, func(c *Config) {
					c.Mode, c.Hosts, c.Files = Static, own, files
					c.Retire = func(context.Context) error { retired++; return nil }
				})
				pause(time.Minute)
				if !strings.Contains(r.Status().Detail, tc.stays) || r.Exists() != (tc.stays != "") || (retired > 0) != (tc.stays == "") {
					t.Errorf("%s: got %q, exists %t, retired %d times, want %q", tc.reason, r.Status(), r.Exists(), retired, tc.stays)
				}
			})
		})
	}
}

// A host in mode static has another serving CA: nothing binds before it has changed, too.
func TestHostInModeStatic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		a.serve(t, "cp-1", "cp-2")
		second := replica(a, "cp-2")
		second.config.Static = func() bool { return true }
		stop := report(t, second)
		r := leader(t, a)
		pause(time.Minute)
		wantState(t, r, Waiting)
		a.expect(t, "cp-2 is in mode static", "probe", "gone")
		stop()
		report(t, replica(a, "cp-2"))
		pause(time.Minute)
		a.expect(t, "all are in mode url", "mutate", "validate")
	})
}

// TestLeavesFiles: they go a while after the last change of what replaces them.
func TestLeavesFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	testutil.Must(t, os.WriteFile(path, nil, 0o600))
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		run(t, a, func(c *Config) { c.Obsolete = []string{path} })
		pause(obsoleteDelay / 2)
		a.remove(t, validating)
		pause(obsoleteDelay - time.Second)
		a.expect(t, "it was repaired", "mutate", "validate")
		if _, err := os.Stat(path); err != nil {
			t.Errorf("too early: %v", err)
		}
		pause(obsoleteDelay / 2)
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("got %v, want that it is gone", err)
		}
	})
}
