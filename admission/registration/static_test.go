// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission/plugin/manifest"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/internal/testutil"
)

// host is one with a kube-apiserver that loads files below dir whenever something asks it.
type host struct {
	*apiserver

	t    *testing.T
	dir  string
	spec Spec

	is    sync.Mutex      // guards what follows
	away  error           // it does not answer
	calls error           // what calling the webhook fails with
	hides map[string]bool // plugins that read no directory
	stale bool            // it does not load
	asked int             // for /metrics
}

func newHost(t *testing.T, dir string) *host {
	h := &host{apiserver: &apiserver{Clientset: fake.NewClientset(), accepted: caPEM(t)}, t: t, dir: dir, spec: urlSpec()}
	h.ca = &servingCA{bundle: h.accepted}
	h.spec.Mode = Static
	h.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		h.is.Lock()
		defer h.is.Unlock()
		pod := action.(clienttesting.CreateActionImpl).GetObject().(*corev1.Pod).DeepCopy()
		for _, one := range h.loads(mutating) {
			if exempt(one) {
				continue
			}
			if h.calls != nil {
				return true, nil, errors.New(`failed calling webhook "` + one.Name + `": ` + h.calls.Error())
			}
			if *one.ClientConfig.URL != h.spec.Endpoint(mutatePath) {
				return true, nil, errors.New(`failed calling webhook "` + one.Name + `": connection refused`)
			}
			h.answer(pod)
		}
		return true, pod, nil
	})
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

func (h *host) names(k kind) string {
	var names []string
	for _, one := range h.loads(k) {
		names = append(names, strings.Split(one.Name, ".")[0])
	}
	return strings.Join(names, ",")
}

// from sets what h does from now on.
func (h *host) from(now func()) {
	h.is.Lock()
	defer h.is.Unlock()
	now()
}

func (h *host) answers(context.Context) error {
	h.is.Lock()
	defer h.is.Unlock()
	return h.away
}

func (h *host) loaded(context.Context) (map[string]string, error) {
	h.is.Lock()
	defer h.is.Unlock()
	h.asked++
	hashes := map[string]string{}
	for k := range kinds {
		if h.hides[k.plugin()] {
			continue
		}
		_, hash, err := manifest.LoadFiles(k.staticDir(h.dir))
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
	config := StaticFilesConfig{
		Spec: h.spec, Dir: h.dir, ServingCA: h.ca, Client: h, Responder: &h.responds,
		Answers: h.answers, Loaded: h.loaded,
	}
	for _, change := range changes {
		change(&config)
	}
	s := NewStaticFiles(config)
	// Without Run: notifications of the file system are not of the bubble.
	s.asks.Open()
	s.keep.Open()
	for _, loop := range []func(context.Context){s.keep.Run, s.asks.Run} {
		h.t.Cleanup(start(h.t, func(ctx context.Context) error { loop(ctx); return nil }))
	}
	s.keep.Add(h.dir)
	synctest.Wait()
	return s
}

func wantStatic(t *testing.T, s *StaticFiles, want State, detail string) {
	t.Helper()
	if got := s.Status(); got.State != want || !strings.Contains(got.Detail, detail) {
		t.Errorf("the status is %q, want %s: %s", got, want, detail)
	}
}

func static(t *testing.T, test func(*testing.T, *host)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) { test(t, newHost(t, dir)) })
}

// TestStaticIsProved: the real rules are written once kube-apiserver has called this process by the
// entry of the probe.
func TestStaticIsProved(t *testing.T) {
	static(t, func(t *testing.T, h *host) {
		h.from(func() { h.hides = map[string]bool{"MutatingAdmissionWebhook": true} })
		s := h.run()
		pause(time.Hour)
		wantStatic(t, s, Waiting, "needs staticManifestsDir: "+h.dir+"/mutating")
		if got := h.names(mutating) + ";" + h.names(validating); got != "probe;" {
			t.Errorf("the files have %q, want the entry of the probe alone", got)
		}
		if h.asked > 70 {
			t.Errorf("kube-apiserver has sent its metrics %d times in an hour, want one a minute", h.asked)
		}
		// It restarts with the directories.
		h.from(func() { h.away, h.hides, h.calls = errors.New("it restarts"), nil, errors.New("provide credentials") })
		pause(3 * time.Second)
		wantStatic(t, s, Waiting, "it restarts")
		h.from(func() { h.away = nil })
		pause(3 * time.Second)
		wantStatic(t, s, Proving, "provide credentials")
		if got := h.names(mutating); got != "probe" || s.Status().Check() == nil {
			t.Errorf("the file has %q, and readiness is %v", got, s.Status().Check())
		}
		h.from(func() { h.away = errors.New("it restarts with credentials") })
		pause(3 * time.Second)
		h.from(func() { h.away, h.calls = nil, nil })
		pause(3 * time.Second)
		wantStatic(t, s, Registered, "https://127.0.0.1:10262")
		if got := h.names(mutating) + ";" + h.names(validating); got != "mutate,probe;validate" {
			t.Errorf("the files have %q, want the real rules", got)
		}
	})
}

// TestStaticProofIsRepeated: the files are loaded, and kube-apiserver cannot call this process any more.
func TestStaticProofIsRepeated(t *testing.T) {
	static(t, func(t *testing.T, h *host) {
		s := h.run()
		pause(3 * time.Second)
		wantStatic(t, s, Registered, "")
		asked := h.asked
		pause(4 * time.Minute)
		if h.asked != asked {
			t.Errorf("kube-apiserver has sent its metrics %d times in four minutes, want none", h.asked-asked)
		}
		h.from(func() { h.calls = errors.New("x509: unknown authority") })
		pause(provenFor + loadDelay + time.Second)
		wantStatic(t, s, Repairing, "x509: unknown authority")
		h.from(func() { h.calls = nil })
		pause(maxPause)
		wantStatic(t, s, Registered, "")

		h.from(func() { h.stale = true })
		pause(loadedFor + loadDelay + time.Second)
		wantStatic(t, s, Repairing, "has not loaded the present files")
		h.from(func() { h.stale = false })
		pause(maxPause)
		wantStatic(t, s, Registered, "")

		h.from(func() { h.away = errors.New("it restarts") })
		pause(time.Minute)
		wantStatic(t, s, Registered, "")
	})
}

// TestStaticAfterARestart: the files are right, and stay.
func TestStaticAfterARestart(t *testing.T) {
	static(t, func(t *testing.T, h *host) {
		h.run()
		pause(3 * time.Second)
		right, err := readStatic(h.dir)
		testutil.Must(t, err)
		h.from(func() { h.calls = errors.New("tls: internal error") })
		next := h.run(func(c *StaticFilesConfig) { c.Responder = &ProbeResponder{} })
		pause(time.Minute)
		wantStatic(t, next, Proving, "tls: internal error")
		if after, err := readStatic(h.dir); err != nil || !slices.EqualFunc(right[:], after[:], slices.Equal[[]byte]) {
			t.Errorf("right files have been written again: %v", err)
		}
	})
}

// TestStaticOnAnotherPort: the rules of the previous process stay bound until the new ones are proved.
func TestStaticOnAnotherPort(t *testing.T) {
	static(t, func(t *testing.T, h *host) {
		h.run()
		pause(3 * time.Second)
		h.from(func() { h.spec.Port++ })
		h.from(func() { h.calls = errors.New("connection refused") })
		s := h.run()
		pause(time.Minute)
		wantStatic(t, s, Proving, "connection refused")
		if got := h.names(mutating) + ";" + h.names(validating); got != "mutate,probe;validate" || !exempt(h.loads(mutating)[0]) {
			t.Errorf("the files have %q, want the previous rules with an exemption for the probe", got)
		}
		h.from(func() { h.calls = nil })
		pause(maxPause)
		wantStatic(t, s, Registered, "https://127.0.0.1:10263")
		if got := *h.loads(mutating)[0].ClientConfig.URL; got != "https://127.0.0.1:10263/mutate" || exempt(h.loads(mutating)[0]) {
			t.Errorf("the first rule is for %s", got)
		}
	})
}

// TestStaticFilesAreKeptMeanwhile: a kube-apiserver that does not say what it has loaded keeps no file from being
// repaired.
func TestStaticFilesAreKeptMeanwhile(t *testing.T) {
	static(t, func(t *testing.T, h *host) {
		var hang atomic.Bool
		hang.Store(true)
		s := h.run(func(c *StaticFilesConfig) {
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
			if got := h.names(mutating); got != "probe" {
				t.Errorf("a second later the file has %q, want the entry of the probe", got)
			}
		}
		pause(loadDelay + askTimeout)
		wantStatic(t, s, Repairing, "which webhook configurations it has loaded: context deadline exceeded")
		hang.Store(false)
		pause(maxPause + askTimeout)
		wantStatic(t, s, Registered, "")
	})
}

// TestUnregisterStatic: the files go, also those that a process writes, and stay away until register.
func TestUnregisterStatic(t *testing.T) {
	static(t, func(t *testing.T, h *host) {
		s := h.run()
		pause(3 * time.Second)
		testutil.Must(t, UnregisterStatic(h.dir))
		s.keep.Add(h.dir)
		pause(time.Minute)
		wantStatic(t, s, Off, "webhook register --static-registration-dir="+h.dir)
		testutil.Must(t, s.Status().Check())
		testutil.Must(t, os.WriteFile(mutating.staticPath(h.dir), nil, 0o600))
		s.keep.Add(h.dir)
		pause(time.Second)
		for _, path := range StaticPaths(h.dir) {
			if _, err := os.Stat(path); !os.IsNotExist(err) {
				t.Errorf("%s is there, or %v", path, err)
			}
		}
		testutil.Must(t, RegisterStatic(h.dir))
		s.keep.Add(h.dir)
		pause(3 * time.Second)
		wantStatic(t, s, Registered, "")
	})
}

// TestEncodeStatic: what would stop kube-apiserver at its next start is not written.
func TestEncodeStatic(t *testing.T) {
	t.Parallel()
	ca := caPEM(t)
	for name, tc := range map[string]struct {
		change func(*entry)
		want   string
	}{
		"Right":    {change: func(*entry) {}},
		"CABundle": {change: func(e *entry) { e.ClientConfig.CABundle = []byte("rubbish") }, want: "expected certificates in PEM"},
		"URL":      {change: func(e *entry) { e.ClientConfig.URL = new("http://127.0.0.1") }, want: "webhooks[0].clientConfig.url"},
		"Service":  {change: func(e *entry) { e.ClientConfig = serviceSpec().clientConfig("/", ca) }, want: "cannot refer to a Service"},
		"Twice":    {change: func(e *entry) { e.Name = probeName }, want: "webhooks[1].name: Duplicate"},
	} {
		t.Run(name, func(t *testing.T) {
			var entries [kinds][]entry
			entries[mutating], _ = urlSpec().entries(ca)
			entries[mutating] = append(entries[mutating], urlSpec().probeEntry(ca))
			tc.change(&entries[mutating][0])
			_, err := encodeStatic(entries)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("encodeStatic = %v, want %q", err, tc.want)
			}
		})
	}
	for name, content := range map[string]string{
		"another kind": "apiVersion: v1\nkind: Pod\nmetadata: {name: a.static.k8s.io}\n",
		"unknown field": "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingWebhookConfiguration\n" +
			"metadata: {name: a.static.k8s.io}\nx: 1\n",
		"another name": "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingWebhookConfiguration\nmetadata: {name: a}\n",
	} {
		if _, err := mutating.decodeStatic([]byte(content)); err == nil {
			t.Errorf("%s: decoded", name)
		}
	}
}
