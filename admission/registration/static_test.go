// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiserver/pkg/admission/plugin/manifest"
	"k8s.io/component-base/metrics"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/manifests"
)

// host is one with a kube-apiserver that loads files below dir whenever something asks it.
type host struct {
	*apiserver

	t    *testing.T
	dir  string
	spec Spec

	// The mutex of apiserver guards what follows.
	away  error           // it does not answer
	hides map[string]bool // plugins that read no directory
	stale bool            // it does not load
	asked int             // for /metrics
}

func newHost(t *testing.T, dir string) *host {
	h := &host{apiserver: newAPIServer(t), t: t, dir: dir, spec: urlSpec()}
	h.spec.Mode = Static
	h.bound = func() []entry { return h.loads(mutating) }
	return h
}

// loads returns the webhooks of a file.
func (h *host) loads(k kind) []entry {
	content, err := os.ReadFile(k.staticPath(h.dir))
	if err != nil {
		return nil
	}
	o, err := k.decodeStatic(content)
	if err != nil {
		h.t.Errorf("kube-apiserver would not start with this file: %v", err)
	}
	return o.webhooks()
}

// files returns the names of the entries in both files.
func (h *host) files() string {
	var both []string
	for k := range kinds {
		var names []string
		for _, one := range h.loads(k) {
			names = append(names, strings.Split(one.Name, ".")[0])
		}
		both = append(both, strings.Join(names, ","))
	}
	return strings.Join(both, ";")
}

// from sets what h does from now on.
func (h *host) from(now func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now()
}

func (h *host) loaded(context.Context) (map[string]string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked++
	if h.away != nil {
		return nil, h.away
	}
	hashes := map[string]string{}
	for k := range kinds {
		if h.hides[k.plugin()] {
			continue
		}
		_, hash, err := manifest.LoadFiles(manifests.StaticDirs(h.dir)[k])
		if err != nil {
			return nil, err
		}
		if hashes[k.plugin()] = hash; h.stale {
			hashes[k.plugin()] = "sha256:other"
		}
	}
	return hashes, nil
}

func (h *host) run(changes ...func(*StaticFilesConfig)) *StaticFiles {
	h.t.Helper()
	h.from(func() { h.url = h.spec.Endpoint(mutatePath) })
	config := StaticFilesConfig{
		Config: Config{Spec: h.spec, ServingCA: h.ca, Client: h, Responder: &h.responds},
		Dir:    h.dir, Loaded: h.loaded,
	}
	for _, change := range changes {
		change(&config)
	}
	s := NewStaticFiles(config)
	// Without Run: notifications of the file system are not of the bubble.
	s.asks.Open()
	s.keep.Open()
	for _, loop := range []func(context.Context){s.keep.Run, s.asks.Run} {
		testutil.Start(h.t, func(ctx context.Context) error { loop(ctx); return nil })
	}
	s.keep.Add(h.dir)
	synctest.Wait()
	return s
}

// step is what a host does, and what a process of it says some time later.
type step struct {
	do     func()
	after  time.Duration
	state  State
	detail string // part of it
	files  string // not compared if empty
}

func (h *host) walk(s *StaticFiles, steps ...step) {
	h.t.Helper()
	for i, one := range steps {
		if one.do != nil {
			h.from(one.do)
		}
		pause(one.after)
		if got := s.Status(); got.State != one.state || !strings.Contains(got.Detail, one.detail) {
			h.t.Errorf("step %d: the status is %q, want %s: %s", i, got, one.state, one.detail)
		}
		testutil.Check(h.t, fmt.Sprintf("step %d: ready", i), one.state == Registered || one.state == Off, s.Status().Check() == nil)
		if got := h.files(); one.files != "" && got != one.files {
			h.t.Errorf("step %d: the files have %q, want %q", i, got, one.files)
		}
	}
}

func static(t *testing.T, test func(*testing.T, *host)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) { test(t, newHost(t, dir)) })
}

// TestStaticIsProved: the real rules are written once kube-apiserver has called this process by the
// entry of the probe. The proof is repeated.
func TestStaticIsProved(t *testing.T) {
	const both = "mutate,probe;validate"
	static(t, func(t *testing.T, h *host) {
		h.hides = map[string]bool{"MutatingAdmissionWebhook": true}
		s := h.run()
		h.walk(s, step{after: time.Hour, state: Waiting, detail: "needs staticManifestsDir: " + h.dir + "/mutating", files: "probe;"})
		testutil.Expect(t, h.asked <= 190, "kube-apiserver has sent its metrics %d times in an hour, want at most three a minute", h.asked)
		h.walk(s,
			step{
				do: func() {
					h.away, h.hides, h.down = errors.New("it restarts with them"), nil, errors.New("provide credentials")
				},
				after: maxPause, state: Waiting, detail: "it restarts with them",
			},
			step{do: func() { h.away = nil }, after: maxPause, state: Proving, detail: "provide credentials", files: "probe;"},
			step{do: func() { h.down = nil }, after: maxPause, state: Registered, detail: "https://127.0.0.1:10262",
				files: "mutate,probe;validate"},
		)
		asked := h.asked
		h.walk(s, step{after: 4 * time.Minute, state: Registered})
		testutil.Check(t, "kube-apiserver has sent its metrics, times in four minutes", 0, h.asked-asked)
		h.walk(s,
			step{
				do:    func() { h.down = errors.New(`failed calling webhook "` + probeName + `": x509: unknown authority`) },
				after: askEach + 16*time.Second, state: Unreachable, detail: "x509: unknown authority", files: both,
			},
			step{do: func() { h.down = nil }, after: maxPause, state: Registered},
			step{
				do: func() { h.stale = true }, after: loadedEach*askEach + 16*time.Second,
				state: Waiting, detail: "has not loaded the present files", files: both,
			},
			step{do: func() { h.stale = false }, after: maxPause, state: Registered},
			step{
				do: func() { h.down = errors.New("pods is forbidden") }, after: askEach + 16*time.Second,
				state: Unknown, detail: "pods is forbidden", files: both,
			},
			step{do: func() { h.down = nil }, after: maxPause, state: Registered},
			step{
				do:    func() { h.idle, h.dial = 25, errors.New(`failed calling webhook "`+probeName+`": unknown authority`) },
				after: time.Minute,
				state: Unreachable, detail: "unknown authority",
			},
			step{do: func() { h.dial = nil }, after: maxPause, state: Registered},
			step{
				do:    func() { h.away, h.down = errors.New("it is down"), errors.New("it is down") },
				after: askEach + 16*time.Second, state: Unknown, detail: "it is down", files: both,
			},
			step{do: func() { h.away, h.down = nil, nil }, after: maxPause, state: Registered},
		)
	})
}

// TestStaticAfterARestart: the files are right, and stay.
func TestStaticAfterARestart(t *testing.T) {
	static(t, func(t *testing.T, h *host) {
		h.walk(h.run(), step{after: 3 * time.Second, state: Registered})
		right := testutil.Get(readStatic(h.dir))(t)
		h.from(func() { h.down = errors.New(`failed calling webhook "` + probeName + `": tls: internal error`) })
		next := h.run(func(c *StaticFilesConfig) { c.Responder = &ProbeResponder{} })
		h.walk(next, step{after: time.Minute, state: Unreachable, detail: "tls: internal error", files: "mutate,probe;validate"})
		after := testutil.Get(readStatic(h.dir))(t)
		testutil.Check(t, "right files", right, after)
	})
}

// TestStaticOnAnotherPort: the rules of the previous process stay bound until the new ones are proved.
func TestStaticOnAnotherPort(t *testing.T) {
	static(t, func(t *testing.T, h *host) {
		const both = "mutate,probe;validate"
		h.walk(h.run(), step{after: 3 * time.Second, state: Registered})
		h.from(func() {
			h.spec.Port, h.down = h.spec.Port+1, errors.New(`failed calling webhook "`+probeName+`": connection refused`)
		})
		s := h.run()
		h.walk(s, step{after: time.Minute, state: Unreachable, detail: "connection refused", files: both})
		testutil.Expect(t, exempt(h.loads(mutating)[0]), "the previous rules do not exempt the probe")
		h.walk(s, step{do: func() { h.down = nil }, after: maxPause, state: Registered, detail: "https://127.0.0.1:10263", files: both})
		got := *h.loads(mutating)[0].ClientConfig.URL
		testutil.Expect(t, got == "https://127.0.0.1:10263/mutate" && !exempt(h.loads(mutating)[0]), "the first rule is for %s", got)
	})
}

// TestStaticFilesAreKeptMeanwhile: a kube-apiserver that does not say what it has loaded keeps no file from being
// repaired.
func TestStaticFilesAreKeptMeanwhile(t *testing.T) {
	static(t, func(t *testing.T, h *host) {
		var hang atomic.Bool
		hang.Store(true)
		registry := metrics.NewKubeRegistry()
		s := h.run(func(c *StaticFilesConfig) {
			c.Metrics = NewMetrics(registry.MustRegister)
			c.Loaded = func(ctx context.Context) (map[string]string, error) {
				if hang.Load() {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return h.loaded(ctx)
			}
		})
		for _, harm := range []func(string) error{os.Remove, func(path string) error { return os.Truncate(path, 0) }} {
			testutil.Must(t, harm(mutating.staticPath(h.dir)))
			s.keep.Add(h.dir)
			pause(time.Second)
			testutil.Check(t, "files a second later", "probe;", h.files())
		}
		const repairs, loaded = "sacm_webhook_registration_repairs_total", "sacm_webhook_static_loaded"
		testutil.Check(t, "repairs", []string{repairs + " 2"}, testutil.Series(registry, repairs))
		h.walk(s,
			step{after: 3 * askTimeout, state: Waiting, detail: "which webhook configurations it has loaded: context deadline exceeded"},
			step{do: func() { hang.Store(false) }, after: maxPause + askTimeout, state: Registered},
		)
		testutil.Check(t, "loaded", []string{loaded + " 1"}, testutil.Series(registry, loaded))
	})
}

// TestStaticPolicy: the policy that names accounts is there while the real rules are, if they refuse what they miss.
func TestStaticPolicy(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Spec)
		want   bool
	}{
		"Ordinary":     {change: func(s *Spec) { s.Ordinary = true }, want: true},
		"Ignore":       {change: func(s *Spec) { s.Ordinary, s.FailurePolicy = true, admissionregistrationv1.Ignore }},
		"OtherPlugins": {change: func(*Spec) {}},
	} {
		t.Run(name, func(t *testing.T) {
			static(t, func(t *testing.T, h *host) {
				tc.change(&h.spec)
				h.down = errors.New("connection refused")
				s := h.run()
				has := func(what string, want bool) {
					t.Helper()
					s.keep.Add(h.dir)
					pause(time.Second)
					content, err := os.ReadFile(staticPolicyPath(h.dir))
					exists := err == nil && bytes.Equal(content, manifests.StaticPolicy)
					testutil.Expect(t, exists == want, "%s the policy is there: %t, want %t; %v", what, exists, want, err)
				}
				h.walk(s, step{after: time.Minute, state: Proving})
				has("before the proof", false)
				h.walk(s, step{do: func() { h.down = nil }, after: maxPause, state: Registered})
				has("once registered", tc.want)
				if tc.want {
					testutil.Must(t, os.WriteFile(staticPolicyPath(h.dir), []byte("x"), 0o600))
					has("after a change", true)
				}
				testutil.Must(t, UnregisterStatic(h.dir))
				has("switched off", false)
			})
		})
	}
}

// TestUnregisterStatic: the files go, also those that a process writes, and stay away until register.
func TestUnregisterStatic(t *testing.T) {
	static(t, func(t *testing.T, h *host) {
		s := h.run()
		pause(3 * time.Second)
		testutil.Must(t, UnregisterStatic(h.dir))
		s.keep.Add(h.dir)
		h.walk(s, step{after: time.Minute, state: Off, detail: "webhook register --static-registration-dir=" + h.dir})
		testutil.Must(t, os.WriteFile(mutating.staticPath(h.dir), nil, 0o600))
		s.keep.Add(h.dir)
		pause(time.Second)
		for _, path := range StaticPaths(h.dir) {
			_, err := os.Stat(path)
			testutil.Expect(t, os.IsNotExist(err), "%s is there, or %v", path, err)
		}
		testutil.Must(t, RegisterStatic(h.dir))
		s.keep.Add(h.dir)
		h.walk(s, step{after: 3 * time.Second, state: Registered})
	})
}

// TestStaticProofExpires: after a switch-off nothing binds by a proof of the past, and the metric does not say
// that kube-apiserver calls us.
func TestStaticProofExpires(t *testing.T) {
	const loaded = "sacm_webhook_static_loaded"
	for name, tc := range map[string]struct{ lost, unseen bool }{"Lost": {lost: true}, "NotYetLost": {}, "Unseen": {unseen: true}} {
		t.Run(name, func(t *testing.T) {
			static(t, func(t *testing.T, h *host) {
				registry := metrics.NewKubeRegistry()
				s := h.run(func(c *StaticFilesConfig) { c.Metrics = NewMetrics(registry.MustRegister) })
				h.walk(s, step{after: 3 * time.Second, state: Registered})
				testutil.Check(t, "loaded", []string{loaded + " 1"}, testutil.Series(registry, loaded))
				breaks := func() { h.down = errors.New(`failed calling webhook "` + probeName + `": unknown authority`) }
				if tc.lost {
					h.walk(s, step{do: breaks, after: time.Minute, state: Unreachable})
				}
				testutil.Must(t, UnregisterStatic(h.dir))
				if tc.unseen { // the process hung
					h.from(breaks)
				} else {
					s.keep.Add(h.dir)
					h.walk(s, step{do: breaks, after: time.Second, state: Off, files: ";"})
					testutil.Check(t, "loaded, switched off", []string{loaded + " 0"}, testutil.Series(registry, loaded))
				}
				testutil.Must(t, RegisterStatic(h.dir))
				s.keep.Add(h.dir)
				h.walk(s,
					step{after: time.Minute, state: Proving, detail: "unknown authority", files: "probe;"},
					step{do: func() { h.down = nil }, after: maxPause, state: Registered, files: "mutate,probe;validate"},
				)
			})
		})
	}
}

// TestStaticFight: a client that rewrites a file again and again costs a bounded number of writes, as in the API.
func TestStaticFight(t *testing.T) {
	static(t, func(t *testing.T, h *host) {
		s := h.run()
		h.walk(s, step{after: 3 * time.Second, state: Registered})
		repairs := 0
		for range 60 * 10 {
			testutil.Must(t, os.Truncate(validating.staticPath(h.dir), 0))
			s.keep.Add(h.dir)
			pause(100 * time.Millisecond)
			if info, err := os.Stat(validating.staticPath(h.dir)); err == nil && info.Size() > 0 {
				repairs++
			}
		}
		most := writeBurst + int(time.Minute/writeInterval)
		testutil.Expect(t, repairs != 0 && repairs <= most, "%d repairs in a minute, want at most %d", repairs, most)
		h.walk(s, step{after: 2 * staticPoll, state: Registered})
	})
}

// TestStaticRepairs: what another process does to a bound file is repaired, a removal after one proof.
func TestStaticRepairs(t *testing.T) {
	const both, repairs = "mutate,probe;validate", "sacm_webhook_registration_repairs_total"
	static(t, func(t *testing.T, h *host) {
		registry := metrics.NewKubeRegistry()
		s := h.run(func(c *StaticFilesConfig) { c.Metrics = NewMetrics(registry.MustRegister) })
		h.walk(s, step{after: 3 * time.Second, state: Registered})
		for k := range kinds {
			testutil.Must(t, os.Remove(k.staticPath(h.dir)))
			s.keep.Add(h.dir)
			h.walk(s, step{after: 3 * time.Second, state: Registered, files: both})
		}
		testutil.Check(t, "repairs", []string{repairs + " 2"}, testutil.Series(registry, repairs))
		h.walk(s, step{
			do:    func() { h.down = errors.New(`failed calling webhook "` + probeName + `": unknown authority`) },
			after: askEach, state: Registered,
		})
		testutil.Must(t, os.Truncate(validating.staticPath(h.dir), 0))
		s.keep.Add(h.dir)
		pause(time.Second)
		testutil.Check(t, "files after a failure", "mutate,probe;", h.files())
	})
}

// TestDecodeStatic: what would stop kube-apiserver at its next start binds nothing, and is replaced.
func TestDecodeStatic(t *testing.T) {
	t.Parallel()
	ca := caPEM(t)
	for name, tc := range map[string]struct {
		change func(*entry)
		wrong  bool
	}{
		"Right":    {change: func(*entry) {}},
		"CABundle": {change: func(e *entry) { e.ClientConfig.CABundle = []byte("rubbish") }, wrong: true},
		"URL":      {change: func(e *entry) { e.ClientConfig.URL = new("http://127.0.0.1") }, wrong: true},
		"Service":  {change: func(e *entry) { e.ClientConfig = serviceSpec().clientConfig("/", ca) }, wrong: true},
		"Twice":    {change: func(e *entry) { e.Name = probeName }, wrong: true},
	} {
		t.Run(name, func(t *testing.T) {
			var entries [kinds][]entry
			entries[mutating], _ = urlSpec().entries(ca)
			entries[mutating] = append(entries[mutating], urlSpec().probeEntry(ca))
			tc.change(&entries[mutating][0])
			contents := testutil.Get(encodeStatic(entries))(t)
			_, err := mutating.decodeStatic(contents[mutating])
			testutil.Check(t, "refused", tc.wrong, err != nil)
		})
	}
	for name, content := range map[string]string{
		"another kind": "apiVersion: v1\nkind: Pod\nmetadata: {name: a.static.k8s.io}\n",
		"unknown field": "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingWebhookConfiguration\n" +
			"metadata: {name: a.static.k8s.io}\nx: 1\n",
		"another name": "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingWebhookConfiguration\nmetadata: {name: a}\n",
	} {
		_, err := mutating.decodeStatic([]byte(content))
		testutil.Expect(t, err != nil, "%s: decoded", name)
	}
}
