// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/admission/plugin/manifest"
)

// staticCA is a ServingCA with one caBundle.
type staticCA struct{ loaded int }

func (*staticCA) CABundle() []byte            { return []byte("ca") }
func (*staticCA) OnChange(func())             {}
func (c *staticCA) Registered([][]byte, bool) { c.loaded++ }

func TestStaticFiles(t *testing.T) {
	t.Parallel()
	loaded := func(dir string) map[string]string {
		hashes := map[string]string{}
		for k := range kinds {
			_, hash, err := manifest.LoadFiles(k.staticDir(dir))
			if err != nil {
				t.Error(err)
			}
			hashes[k.plugin()] = hash
		}
		return hashes
	}
	without := func(plugin string, hash ...string) func(string) (map[string]string, error) {
		return func(dir string) (map[string]string, error) {
			hashes := loaded(dir)
			delete(hashes, plugin)
			for _, other := range hash {
				hashes[plugin] = other
			}
			return hashes, nil
		}
	}
	cases := map[string]struct {
		reason string
		loaded func(dir string) (map[string]string, error)
		after  time.Duration
		state  State
		detail string
		known  bool // the serving CA may rely on the caBundle
	}{
		"Loaded": {loaded: func(dir string) (map[string]string, error) { return loaded(dir), nil }, state: Registered, known: true},
		"NotYet": {
			reason: "kube-apiserver needs a moment after a write", loaded: without("ValidatingAdmissionWebhook", "sha256:other"), state: Waiting,
			detail: "has not loaded the present files",
		},
		"AnotherHash": {
			loaded: without("ValidatingAdmissionWebhook", "sha256:other"), after: time.Minute, state: Repairing,
			detail: "has not loaded the present files",
		},
		"Empty": {
			reason: "it has found no content", loaded: without("MutatingAdmissionWebhook", ""), after: time.Minute, state: Repairing,
			detail: "has loaded no file",
		},
		"NotConfigured": {loaded: without("MutatingAdmissionWebhook"), after: time.Minute, state: Repairing, detail: "needs staticManifestsDir"},
		"CannotBeAsked": {loaded: func(string) (map[string]string, error) { return nil, errors.New("boom") }, state: Repairing, detail: "boom"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				ca, spec := &staticCA{}, urlSpec()
				spec.Mode = Static
				s := NewStaticFiles(StaticFilesConfig{
					Spec: spec, Dir: dir, ServingCA: ca,
					Loaded: func(context.Context) (map[string]string, error) { return tc.loaded(dir) },
				})
				for range 2 {
					status, err := s.step(t.Context())
					if err != nil {
						status = Status{Repairing, err.Error()}
					}
					s.show(t.Context(), status)
					time.Sleep(tc.after)
				}
				if got := s.Status(); got.State != tc.state || !strings.Contains(got.Detail, tc.detail) || (ca.loaded > 0) != tc.known {
					t.Errorf("%s: got %s and %d caBundles, want %s: %s", tc.reason, got, ca.loaded, tc.state, tc.detail)
				}
			})
		})
	}
}

func TestReadLoaded(t *testing.T) {
	t.Parallel()
	const series = "# TYPE a counter\na 1\n" + loadedMetric +
		`{apiserver_id_hash="sha256:us",hash="sha256:x",plugin="MutatingAdmissionWebhook"} 1` + "\n"
	got, err := readLoaded(strings.NewReader(series), map[string]bool{"sha256:us": true})
	if diff := cmp.Diff(map[string]string{"MutatingAdmissionWebhook": "sha256:x"}, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if _, err := readLoaded(strings.NewReader(series), map[string]bool{"sha256:another": true}); err == nil {
		t.Error("the answer of another host's kube-apiserver was taken")
	}
}
