// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rival

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/component-base/metrics"
	"k8s.io/utils/clock"

	"sa-controller-manager/controllers/informers"
	"sa-controller-manager/controllers/rootca"
	"sa-controller-manager/internal/events"
	"sa-controller-manager/signing"
)

// sink remembers Events.
type sink struct {
	mu    sync.Mutex
	lines []string
}

func (s *sink) Eventf(regarding, _ runtime.Object, kind, reason, action, note string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, fmt.Sprintf("%s: %s %s %s: %s", regarding.(*corev1.ObjectReference).Name, kind, reason, action, fmt.Sprintf(note, args...)))
}

// process is a Detector that runs in a bubble, whose clock stands still while anything
// moves.
type process struct {
	*Detector
	*world
	*sink
	t        *testing.T
	registry metrics.KubeRegistry
	stop     func()
}

func start(t *testing.T) *process {
	t.Helper()
	p := &process{world: newWorld(t), sink: &sink{}, t: t, registry: metrics.NewKubeRegistry()}
	p.Detector = New(Config{
		View: informers.New(fake.NewClientset(), 0), Keys: signing.NewKeyring(p.ours), RootCA: rootca.NewSource(p.ca),
		Recorder: events.NewRecorderTo(p.sink, clock.RealClock{}), Process: &corev1.ObjectReference{Kind: "Lease", Name: "process"},
		Metrics: NewMetrics(p.registry.MustRegister),
	})
	p.lead()
	return p
}

func (p *process) lead() {
	ctx, cancel := context.WithCancel(p.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := p.Run(ctx); err != nil {
			p.t.Error(err)
		}
	}()
	p.stop = func() { cancel(); <-ended }
	time.Sleep(settling)
	synctest.Wait()
}

// sees has the watch bring a change.
func (p *process) sees(before, after secret) {
	p.observe(p.t.Context(), before.observed(), after.observed())
	synctest.Wait()
}

// fills has manager fill an empty Secret.
func (p *process) fills(manager string, key *signing.PrivateKey) {
	empty := newSecret(p.t, "mine")
	p.sees(empty, empty.token(manager, key))
}

// says wants the status, and the metric with it.
func (p *process) says(when, want string) {
	p.t.Helper()
	if got := p.Status(); got != want {
		p.t.Errorf("%s the status is %q, want %q", when, got, want)
	}
	families, err := p.registry.Gather()
	if err != nil || len(families) != 1 {
		p.t.Fatalf("%d metrics: %v", len(families), err)
	}
	if seen := families[0].GetMetric()[0].GetGauge().GetValue(); (seen == 1) != (want != "") {
		p.t.Errorf("%s the metric is %v and the status %q", when, seen, want)
	}
}

func (p *process) told(want ...string) {
	p.t.Helper()
	p.sink.mu.Lock()
	defer p.sink.mu.Unlock()
	if len(p.lines) != len(want) {
		p.t.Fatalf("Events: %q, want %d", p.lines, len(want))
	}
	for i := range want {
		if !strings.HasPrefix(p.lines[i], want[i]) {
			p.t.Errorf("Event %q, want %q", p.lines[i], want[i])
		}
	}
}

const (
	kcmFills  = `"kube-controller-manager" fills token Secrets beside this process`
	kcmUndoes = `"kube-controller-manager" puts another root CA into token Secrets whenever this process has written its own`
)

func TestARivalComesAndGoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := start(t)
		defer func() { p.stop() }()
		p.says("at the start", "")
		p.fills(kcm, p.theirs)
		p.says("at the first sign", kcmFills+" (1 times, the last one 0s ago)")
		time.Sleep(20 * time.Minute)
		p.fills(kcm, p.theirs)
		full := newSecret(t, "mine").rootCA(us, p.ca)
		p.sees(full, full.rootCA(kcm, p.otherCA))
		time.Sleep(time.Minute)
		p.says("with both", kcmFills+" (2 times, the last one 1m0s ago); "+kcmUndoes+" (1 times, the last one 1m0s ago)")
		p.told("process: Warning SecondTokenController Watch: "+kcmFills+": "+Mend, "process: Warning SecondTokenController Watch: "+kcmUndoes)

		time.Sleep(quiet - time.Minute - time.Second)
		p.says("to the end of the quiet", kcmFills+" (2 times, the last one 59m59s ago); "+kcmUndoes+" (1 times, the last one 59m59s ago)")
		time.Sleep(time.Second)
		synctest.Wait()
		p.says("after the quiet", "")
		p.fills(kcm, p.theirs)
		p.says("anew", kcmFills+" (1 times, the last one 0s ago)")
		p.stop()
		p.says("who does not lead", "")
	})
}

// What a former leader, or a kube-controller-manager that has just handed over, wrote
// last comes late.
func TestLateWritesDoNotCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := start(t)
		p.stop()
		p.fills(kcm, p.theirs)
		p.says("while it does not lead", "")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); _ = p.Run(ctx) }()
		synctest.Wait()
		p.fills(kcm, p.theirs)
		time.Sleep(settling - time.Millisecond)
		p.fills(kcm, p.theirs)
		p.says("in the beginning", "")
		time.Sleep(time.Millisecond)
		p.fills(kcm, p.theirs)
		p.says("later", kcmFills+" (1 times, the last one 0s ago)")
		cancel()
		<-ended
	})
}

func TestStrangersAreBelievedTheThirdTime(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		do     func(*process)
		want   string
	}{
		"TwoFilled": {
			reason: "a user may have a token of his own",
			do:     func(p *process) { p.fills(stranger, p.theirs); p.fills(stranger, p.theirs) },
		},
		"ThreeFilled": {
			do: func(p *process) {
				p.fills(stranger, p.theirs)
				p.fills(stranger, p.theirs)
				p.fills(stranger, p.theirs)
			},
			want: `"k3s" fills token Secrets beside this process (3 times, the last one 0s ago)`,
		},
		"ThreeOfThree": {
			reason: "whom a user is not to be mistaken for",
			do:     func(p *process) { p.fills("a", p.theirs); p.fills("b", p.theirs); p.fills("c", p.theirs) },
		},
		"BackAndForth": {
			do:   func(p *process) { undo(p, "mine"); undo(p, "mine"); undo(p, "mine") },
			want: `"k3s" puts another root CA into token Secrets whenever this process has written its own (3 times, the last one 0s ago)`,
		},
		"ManyOnce": {
			reason: "a user's script, which changes each once",
			do: func(p *process) {
				for i := range 100 {
					undo(p, fmt.Sprint("secret-", i))
				}
			},
		},
		"TwiceAndLate": {
			reason: "what is long ago does not count",
			do:     func(p *process) { undo(p, "mine"); undo(p, "mine"); time.Sleep(quiet); undo(p, "mine") },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := start(t)
				defer p.stop()
				tc.do(p)
				p.says(tc.reason, tc.want)
			})
		})
	}
}

func undo(p *process, name string) {
	full := newSecret(p.t, name).rootCA(us, p.ca)
	p.sees(full, full.rootCA(stranger, p.otherCA))
}

// Who may write Secrets can have managedFields name anybody.
func TestForgedNamesAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := start(t)
		defer p.stop()
		for i := range 2 * maxSigns {
			for range strangersSigns {
				p.fills(strings.Repeat("a", 100)+fmt.Sprint(i)+"\n", p.theirs)
			}
		}
		if n := len(p.evidence.signs); n != maxSigns {
			t.Errorf("%d signs are remembered, want %d", n, maxSigns)
		}
		if status := p.Status(); len(status) > 1000 || strings.Contains(status, "\n") {
			t.Errorf("the status has %d bytes: %.2000q", len(status), status)
		}
		p.fills(kcm, p.theirs)
		if status := p.Status(); !strings.HasPrefix(status, kcmFills) || len(status) > 1000 {
			t.Errorf("among them the status is %.2000q, want it to begin with %q", status, kcmFills)
		}
		time.Sleep(quiet)
		p.fills(kcm, p.theirs)
		p.says("afterwards", kcmFills+" (1 times, the last one 0s ago)")
	})
}
