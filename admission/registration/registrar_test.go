// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/admission"
	"sa-controller-manager/internal/events"
	"sa-controller-manager/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

func (a *apiserver) config() Config {
	return Config{Spec: urlSpec(), Client: a, ServingCA: a.ca, Responder: &a.responds, Recorder: events.NewRecorderTo(a)}
}

// run starts a Registrar in the bubble, which leads. It ends before the test does.
func run(t *testing.T, a *apiserver, changes ...func(*Config)) *Registrar {
	t.Helper()
	config := a.config()
	for _, change := range changes {
		change(&config)
	}
	r := New(config)
	testutil.Start(t, r.Run)
	end := testutil.Start(t, r.Lead)
	t.Cleanup(func() {
		end()
		testutil.Check(t, "state after the end", Idle, r.Status().State)
	})
	synctest.Wait()
	return r
}

var pause = testutil.Pause

// registers starts a Registrar, and waits until it is proved.
func registers(t *testing.T) (*apiserver, *Registrar) {
	t.Helper()
	a := newAPIServer(t)
	r := run(t, a)
	pause(time.Second)
	wantState(t, r, Registered)
	return a, r
}

func wantState(t *testing.T, r *Registrar, want State) {
	t.Helper()
	got := r.Status()
	testutil.Check(t, "state, "+got.Detail, want, got.State)
}

func TestRegistersWhatIsProved(t *testing.T) {
	for name, change := range map[string]func(*apiserver, *Config){
		"by this process": func(*apiserver, *Config) {},
		// With --pod-token=secret and --token-secrets=manual there is no token for the probe.
		"by any replica, without a token": func(a *apiserver, c *Config) {
			a.noToken = apierrors.NewServerTimeout(corev1.Resource("serviceaccounts"), "create pod", 1)
			c.Responder = nil
		},
		// What comes after the webhook refuses every Pod, and proves that it was called.
		"by a Pod that is refused later": func(a *apiserver, _ *Config) {
			a.refuses = errors.New("ValidatingAdmissionPolicy 'team' denied request: it needs the label team")
		},
	} {
		testutil.Bubble(t, name, func(t *testing.T) {
			a := newAPIServer(t)
			r := run(t, a, func(c *Config) { change(a, c) })
			pause(time.Second)
			wantState(t, r, Registered)
			a.expect(t, "proved", "mutate", "validate")
			testutil.Must(t, r.Status().Check())
			probes, writes := a.counts()
			// Each configuration may be created again before its watch has told of it; it exists then.
			testutil.Expect(t, probes == 1 && writes >= 3 && writes <= 5, "%d probes and %d writes, want 1 and 3", probes, writes)
			pause(time.Hour)
			_, after := a.counts()
			testutil.Expect(t, after == writes, "%d writes in an hour in which nothing happened", after-writes)
			wantState(t, r, Registered)
		})
	}
}

func TestNothingBindsThatIsNotReached(t *testing.T) {
	refused := errors.New(`failed calling webhook: Post "https://127.0.0.1:10262/mutate?timeout=5s": dial tcp 127.0.0.1:10262: connect: ` +
		`connection refused`)
	for name, tc := range map[string]struct {
		down    error
		change  func(*Config)
		wantErr string
	}{
		"refused": {down: refused, wantErr: "connection refused"},
		"other certificate": {
			change: func(c *Config) { c.ServingCA = &servingCA{bundle: []byte("another")} }, wantErr: "x509: unknown authority",
		},
		"another process answers": {change: func(c *Config) { c.Responder = &ProbeResponder{} }, wantErr: "another replica"},
	} {
		testutil.Bubble(t, name, func(t *testing.T) {
			a := newAPIServer(t)
			a.breaks(tc.down)
			r := run(t, a, func(c *Config) {
				if tc.change != nil {
					tc.change(c)
				}
			})
			pause(10 * time.Minute)
			wantState(t, r, Proving)
			testutil.CheckError(t, "Check", "https://127.0.0.1:10262/mutate", r.Status().Check())
			testutil.CheckError(t, "Check", tc.wantErr, r.Status().Check())
			o, err := mutating.in(a).get(t.Context())
			testutil.Expect(t, err == nil && len(o.entries) == 1 && o.entries[0].Name == probeName, "more than the probe is bound: %v, %v",
				o, err)
			testutil.Check(t, "the validating one", "gone", a.holds(t, validating))
			probes, writes := a.counts()
			// It may be created again before its watch has told of it.
			testutil.Expect(t, writes >= 1 && writes <= 2 && probes >= 20 && probes <= 31,
				"%d writes and %d probes in ten minutes, want 1 and about 27", writes, probes)
			testutil.Check(t, "number of Events", 1, len(a.recorded()))
			if tc.down == nil {
				return
			}
			a.breaks(nil)
			pause(maxBackoff)
			wantState(t, r, Registered)
			a.expect(t, "reached", "mutate", "validate")
		})
	}
}

// TestProvedAgain: what is registered stays registered only as long as kube-apiserver reaches it.
func TestProvedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, r := registers(t)
		for _, step := range []struct {
			reason string
			err    error // of a Pod
			want   State
		}{
			{"an answer", nil, Registered},
			{"kube-apiserver itself fails, or our permissions", errors.New("etcdserver: request timed out"), Unknown},
			{"a firewall", errors.New(`failed calling webhook "` + mutateName + `": connection refused`), Unreachable},
			{"it is gone", nil, Registered},
		} {
			a.breaks(step.err)
			pause(2 * time.Minute)
			got := r.Status()
			testutil.Expect(t, got.State == step.want && (got.Check() == nil) == (step.want == Registered), "%s: %s", step.reason, got)
		}
	})
}

// TestUnregisterIsCut: what a switch-off leaves behind that ends between its two writes refuses no Pod.
func TestUnregisterIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, r := registers(t)
		cut := true
		a.PrependReactor("update", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			cut = !cut
			return cut, nil, errors.New("connection reset")
		})
		testutil.CheckError(t, "Unregister", "connection reset", Unregister(t.Context(), a))
		pause(time.Minute)
		wantState(t, r, Off)
		a.expect(t, "cut", "mutate", "")
	})
}

// TestProvedByNewConnections: kube-apiserver goes on to use the connections that it has, whatever has changed
// since it made them.
func TestProvedByNewConnections(t *testing.T) {
	for name, tc := range map[string]struct {
		idle   int
		dial   error
		want   State
		detail string
	}{
		"it can make one": {idle: 25, want: Registered},
		"it cannot": {
			idle: 25, dial: errors.New(`failed calling webhook "` + mutateName + `": unknown authority`),
			want: Unreachable, detail: "unknown authority",
		},
		"others make enough": {idle: 100_000, want: Unknown, detail: "40 times on connections that it had before"},
	} {
		testutil.Bubble(t, name, func(t *testing.T) {
			a, r := registers(t)
			a.lets(func() { a.idle, a.dial = tc.idle, tc.dial })
			pause(2 * provenFor)
			wantState(t, r, tc.want)
			testutil.CheckError(t, "Check", tc.detail, r.Status().Check())
		})
	}
}

// TestProofExpires: nothing binds by a proof of the past.
func TestProofExpires(t *testing.T) {
	broken := errors.New(`failed calling webhook "` + mutateName + `": unknown authority`)
	leaveOut := func(o *object) *object { return o.with(nil) }
	for name, tc := range map[string]struct {
		reason    string
		meanwhile func(*testing.T, *apiserver)
	}{
		"SwitchedOff": {"an operator takes it out and tries again", func(t *testing.T, a *apiserver) {
			testutil.Must(t, Unregister(t.Context(), a))
			pause(time.Second)
			a.breaks(broken)
			testutil.Must(t, Register(t.Context(), a))
		}},
		"LostAndSwitchedOff": {"the same, once it is known", func(t *testing.T, a *apiserver) {
			a.breaks(broken)
			pause(2 * provenFor)
			testutil.Must(t, Unregister(t.Context(), a))
			pause(time.Second)
			testutil.Must(t, Register(t.Context(), a))
		}},
		"LostAndEmptied": {"another client ends the outage", func(t *testing.T, a *apiserver) {
			a.breaks(broken)
			pause(2 * provenFor)
			for k := range kinds {
				a.change(t, k, leaveOut)
				pause(time.Minute)
			}
		}},
	} {
		testutil.Bubble(t, name, func(t *testing.T) {
			a, r := registers(t)
			tc.meanwhile(t, a)
			pause(time.Minute)
			wantState(t, r, Proving)
			a.expect(t, tc.reason, "probe", "")
			a.breaks(nil)
			pause(time.Minute)
			wantState(t, r, Registered)
		})
	}
	t.Run("UnseenSwitchOff", func(t *testing.T) { // the leader is in the middle of a proof
		synctest.Test(t, func(t *testing.T) {
			a, r := registers(t)
			r.mu.Lock()
			a.breaks(broken)
			testutil.Must(t, Unregister(t.Context(), a))
			testutil.Must(t, Register(t.Context(), a))
			for k := range kinds {
				for r.watched[k].Load().object.binds() || r.watched[k].Load().off {
					goruntime.Gosched()
				}
			}
			r.mu.Unlock()
			pause(time.Minute)
			wantState(t, r, Proving)
			a.expect(t, "an off that was never seen", "probe", "")
		})
	})
	testutil.Bubble(t, "FailedOnce", func(t *testing.T) {
		a, r := registers(t)
		a.breaks(broken)
		pause(provenFor)
		wantState(t, r, Registered)
		a.change(t, validating, leaveOut)
		pause(time.Second)
		a.expect(t, "the newest repetition has failed", "mutate,probe", "")
	})
	testutil.Bubble(t, "NextTerm", func(t *testing.T) {
		a := newAPIServer(t)
		r := New(a.config())
		testutil.Start(t, r.Run)
		end := testutil.Start(t, r.Lead)
		pause(time.Second)
		end()
		a.breaks(broken)
		a.change(t, mutating, leaveOut)
		testutil.Start(t, r.Lead)
		pause(time.Second)
		// The validating one is bound, but not for the probe.
		wantState(t, r, Unreachable)
		a.expect(t, "the next term", "probe", "validate")
	})
}

// TestURLOnSeveralHosts: a loopback URL is for one kube-apiserver.
func TestURLOnSeveralHosts(t *testing.T) {
	const several = "a loopback URL leads each kube-apiserver to its own host, and they run on several: cp-1, cp-2"
	for name, tc := range map[string]struct {
		hosts, later  string // of identity Leases
		forbidden     bool
		url           string // its host, loopback if empty
		state         State
		fails, reason string
	}{
		"OneHostTwoServers": {hosts: "cp-1 cp-1", state: Registered},
		"TwoHosts":          {hosts: "cp-1 cp-2", state: Waiting, fails: several},
		"TwoHostsByAName":   {hosts: "cp-1 cp-2", url: "webhook.example.org", state: Registered},
		"JoinsLater":        {hosts: "cp-1", later: "cp-2", state: Waiting, fails: several, reason: "it stays bound"},
		"Unknown":           {forbidden: true, state: Waiting, fails: "leases is forbidden"},
	} {
		testutil.Bubble(t, name, func(t *testing.T) {
			a := newAPIServer(t)
			a.PrependReactor("list", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
				return tc.forbidden, nil, errors.New("leases is forbidden")
			})
			for i, host := range strings.Fields(tc.hosts) {
				a.lives(t, string(rune('a'+i)), host)
			}
			r := run(t, a, func(c *Config) { c.Host = cmp.Or(tc.url, c.Host) })
			pause(time.Second)
			if tc.later != "" {
				a.lives(t, "later", tc.later)
				pause(2 * provenFor)
				a.expect(t, "later", "mutate", "validate")
			}
			wantState(t, r, tc.state)
			testutil.CheckError(t, "Check", tc.fails, r.Status().Check())
		})
	}
}

// lives has a kube-apiserver renew its identity Lease once, now.
func (a *apiserver) lives(t *testing.T, name, host string) {
	t.Helper()
	testutil.Must(t, a.Tracker().Add(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem, Name: name,
			Labels: map[string]string{"apiserver.kubernetes.io/identity": "kube-apiserver", corev1.LabelHostname: host},
		},
		Spec: coordinationv1.LeaseSpec{RenewTime: new(metav1.NewMicroTime(time.Now()))},
	}))
}

// Without a caBundle nothing is written. Each that comes later is proved, while the one before stays bound.
func TestCABundleChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		first, second := a.accepted, caPEM(t)
		a.ca.set(nil)
		r := run(t, a)
		pause(time.Minute)
		wantState(t, r, Waiting)
		_, writes := a.counts()
		testutil.Check(t, "writes without a caBundle", 0, writes)
		a.ca.set(first)
		pause(time.Second)
		a.accepts(slices.Concat(first, second))
		synctest.Wait()
		a.expect(t, "both", "mutate", "validate")
		probes, _ := a.counts()
		testutil.Expect(t, probes == 2, "%d probes for a rollover, want one more than the first", probes-1)
		testutil.Check(t, "registered", []string{string(first) + string(second)}, a.ca.has())
		a.change(t, validating, func(o *object) *object { return o.with(nil).annotated(AnnotationOff) })
		third := caPEM(t)
		a.accepts(third)
		testutil.Must(t, Register(t.Context(), a))
		pause(5 * writeInterval) // so many writes are delayed; a step that has seen the annotation before a write comes again
		a.expect(t, "another CA", "mutate", "validate")
		if probes, _ := a.counts(); probes != 3 {
			t.Errorf("%d probes for another CA, want one more", probes-2)
		}
		testutil.Check(t, "registered", []string{string(third)}, a.ca.has())
	})
}

func TestProbeResponder(t *testing.T) {
	t.Parallel()
	a := &ProbeResponder{}
	a.await("awaited")
	ask := func(id string, dryRun, first bool) string {
		response := &admission.Response{}
		object := testutil.Get(json.Marshal(ProbePod(id)))(t)
		a.Probe(&admission.Request{DryRun: dryRun, First: first, Object: object}, response, true)
		testutil.Check(t, id+": closes the connection", len(response.Patch) > 0, response.Close)
		validated := &admission.Response{}
		a.Probe(&admission.Request{DryRun: dryRun, Object: object}, validated, false)
		testutil.Check(t, id+": so does the other call", response.Close, validated.Close)
		if len(response.Patch) == 0 {
			return ""
		}
		return string(response.Patch[0].Value)
	}
	for _, tc := range []struct {
		reason, id, answer, awaits string
		dryRun, first              bool
	}{
		{reason: "a Pod that is really created is no probe", id: "awaited", first: true},
		{reason: "a probe", id: "awaited", dryRun: true, first: true, answer: `"awaited"`, awaits: "awaited"},
		{reason: "that of another client", id: "of another", dryRun: true, first: true, answer: `"of another"`, awaits: "awaited"},
		{reason: "on an old connection", id: "awaited", dryRun: true, answer: `"again/awaited"`, awaits: "again/awaited"},
	} {
		testutil.Check(t, tc.reason, tc.answer, ask(tc.id, tc.dryRun, tc.first))
		testutil.Check(t, tc.reason+": this process has answered", tc.awaits, a.answer())
	}
}

// probes calls saw with the context of each dry-run Pod.
type probes struct {
	*apiserver
	saw func(context.Context)
}

type (
	probesCore struct {
		typedcorev1.CoreV1Interface
		saw func(context.Context)
	}
	probesPods struct {
		typedcorev1.PodInterface
		saw func(context.Context)
	}
)

func (p probes) CoreV1() typedcorev1.CoreV1Interface { return probesCore{p.apiserver.CoreV1(), p.saw} }

func (p probesCore) Pods(namespace string) typedcorev1.PodInterface {
	return probesPods{p.CoreV1Interface.Pods(namespace), p.saw}
}

func (p probesPods) Create(ctx context.Context, pod *corev1.Pod, options metav1.CreateOptions) (*corev1.Pod, error) {
	p.saw(ctx)
	return p.PodInterface.Create(ctx, pod, options)
}

// TestStepsAreOfTheTerm: the requests of a leader have the context of its term, in which the fence of its writes is.
func TestStepsAreOfTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type term struct{}
		a := newAPIServer(t)
		config := a.config()
		fenced := 0
		config.Client = probes{a, func(ctx context.Context) {
			testutil.Expect(t, ctx.Value(term{}) != nil, "a request without the fence")
			fenced++
		}}
		r := New(config)
		testutil.Start(t, r.Run)
		testutil.Start(t, func(ctx context.Context) error { return r.Lead(context.WithValue(ctx, term{}, true)) })
		pause(time.Second)
		wantState(t, r, Registered)
		testutil.Expect(t, fenced != 0, "no request")
	})
}
