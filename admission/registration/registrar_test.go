// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/metrics"

	"sa-controller-manager/admission"
	"sa-controller-manager/internal/events"
	"sa-controller-manager/internal/testutil"
)

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
	stop := start(t, r.Run)
	end := start(t, r.Lead)
	t.Cleanup(func() {
		end()
		if r.Status().State != Idle {
			t.Errorf("after the end: %s", r.Status())
		}
		stop()
	})
	synctest.Wait()
	return r
}

// start runs something until the function that it returns is called.
func start(t *testing.T, run func(context.Context) error) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func pause(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func wantState(t *testing.T, r *Registrar, want State) {
	t.Helper()
	if got := r.Status(); got.State != want {
		t.Errorf("the status is %q, want %s", got, want)
	}
}

func TestRegistersWhatIsProved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		r := run(t, a)
		pause(time.Second)
		wantState(t, r, Registered)
		a.expect(t, "proved", "mutate", "validate")
		if err := r.Status().Check(); err != nil {
			t.Error(err)
		}
		probes, writes := a.counts()
		// The second configuration may be created again when the watch has told of the
		// first one only; it exists then.
		if probes != 1 || writes < 3 || writes > 4 {
			t.Errorf("%d probes and %d writes, want 1 and 3", probes, writes)
		}
		pause(time.Hour)
		if _, after := a.counts(); after != writes {
			t.Errorf("%d writes in an hour in which nothing happened", after-writes)
		}
	})
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
			change:  func(c *Config) { c.ServingCA = &servingCA{bundle: []byte("another")} },
			wantErr: "x509: unknown authority",
		},
		"somebody else answers": {
			change:  func(c *Config) { c.Responder = &ProbeResponder{} },
			wantErr: "another replica",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAPIServer(t)
				a.breaks(tc.down)
				r := run(t, a, func(c *Config) {
					if tc.change != nil {
						tc.change(c)
					}
				})
				pause(10 * time.Minute)
				wantState(t, r, Proving)
				err := r.Status().Check()
				if err == nil || !strings.Contains(err.Error(), "https://127.0.0.1:10262/mutate") || !strings.Contains(err.Error(), tc.wantErr) {
					t.Errorf("Check = %v, want the URL and %q", err, tc.wantErr)
				}
				o, err := mutating.in(a).get(t.Context())
				if err != nil || len(o.entries) != 1 || o.entries[0].Name != probeName {
					t.Errorf("more than the probe is bound: %v, %v", o, err)
				}
				if got := a.holds(t, validating); got != "gone" {
					t.Errorf("the validating one holds %q", got)
				}
				probes, writes := a.counts()
				if writes != 1 || probes < 20 || probes > 30 {
					t.Errorf("%d writes and %d probes in ten minutes, want 1 and about 27", writes, probes)
				}
				if len(a.recorded()) != 1 {
					t.Errorf("Events: %q, want one", a.recorded())
				}
				if tc.down == nil {
					return
				}
				a.breaks(nil)
				pause(maxBackoff)
				wantState(t, r, Registered)
				a.expect(t, "reached", "mutate", "validate")
			})
		})
	}
}

// With --pod-token=secret and --token-secrets=manual there is no token for the probe. The answer of
// any replica is a proof.
func TestProofNeedsNoToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		a.noToken = apierrors.NewServerTimeout(corev1.Resource("serviceaccounts"), "create pod", 1)
		r := run(t, a, func(c *Config) { c.Responder = nil })
		pause(time.Second)
		wantState(t, r, Registered)
	})
}

// Without a caBundle nothing is written. One that changes in steps needs no new proof; another does.
func TestCABundleChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		first, second := a.accepted, caPEM(t)
		a.ca.set(nil)
		r := run(t, a)
		pause(time.Minute)
		wantState(t, r, Waiting)
		if _, writes := a.counts(); writes != 0 {
			t.Errorf("%d writes without a caBundle", writes)
		}
		a.ca.set(first)
		pause(time.Second)
		a.accepts(slices.Concat(first, second))
		synctest.Wait()
		a.expect(t, "both", "mutate", "validate")
		if probes, _ := a.counts(); probes != 1 {
			t.Errorf("%d probes for a rollover, want none but the first", probes)
		}
		if got, want := a.ca.has(), []string{string(first) + string(second)}; !slices.Equal(got, want) {
			t.Errorf("the serving CA receives %q as registered, want %q", got, want)
		}
		a.change(t, validating, func(o *object) *object { return o.with(nil).annotated(AnnotationOff) })
		third := caPEM(t)
		a.accepts(third)
		testutil.Must(t, Register(t.Context(), a))
		pause(time.Second)
		a.expect(t, "another CA", "mutate", "validate")
		if probes, _ := a.counts(); probes != 2 {
			t.Errorf("%d probes for another CA, want one more than the first", probes-1)
		}
		if got, want := a.ca.has(), []string{string(third)}; !slices.Equal(got, want) {
			t.Errorf("the serving CA receives %q as registered, want %q", got, want)
		}
	})
}

func TestModeNoneWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		r := run(t, a, func(c *Config) { c.Spec = Spec{Mode: None} })
		pause(time.Hour)
		wantState(t, r, Idle)
		if actions := a.Actions(); len(actions) != 0 {
			t.Errorf("%d requests: %v", len(actions), actions)
		}
	})
}

func TestForbiddenIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		a.PrependReactor("create", "mutatingwebhookconfigurations", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(admissionregistrationv1.Resource("mutatingwebhookconfigurations"), Name,
				errors.New("no rights"))
		})
		r := run(t, a)
		pause(time.Minute)
		if err := r.Status().Check(); err == nil || !strings.Contains(err.Error(), "no rights") {
			t.Errorf("Check = %v, want it to say why", err)
		}
	})
}

func TestProbeResponder(t *testing.T) {
	t.Parallel()
	a := &ProbeResponder{}
	a.await("awaited")
	ask := func(id string, dryRun bool) int {
		response := &admission.Response{}
		object, err := json.Marshal(ProbePod(id))
		testutil.Must(t, err)
		testutil.Must(t, a.Admit(t.Context(), &admission.Request{DryRun: dryRun, Object: object}, response))
		return len(response.Patch)
	}
	if ask("awaited", false) != 0 || a.hasArrived("awaited") {
		t.Error("a Pod that is really created passes for a probe")
	}
	if ask("awaited", true) != 1 || !a.hasArrived("awaited") {
		t.Error("a probe is not answered")
	}
	if ask("of another", true) != 1 || !a.hasArrived("awaited") || a.hasArrived("of another") {
		t.Error("the probe of another client is not answered, or taken for ours")
	}
}

// TestRepairsAreCounted: what another client has done counts, and what a person has not.
func TestRepairsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		registry := metrics.NewKubeRegistry()
		run(t, a, func(c *Config) { c.Metrics = NewMetrics(registry.MustRegister) })
		pause(time.Minute)
		for range 2 {
			a.change(t, mutating, func(o *object) *object { return o.with(nil) })
			pause(time.Minute)
		}
		testutil.Must(t, Unregister(t.Context(), a))
		pause(time.Minute)
		families, err := registry.Gather()
		testutil.Must(t, err)
		counted := map[string]float64{}
		for _, family := range families {
			counted[family.GetName()] = family.GetMetric()[0].GetCounter().GetValue()
		}
		if got := counted["sacm_webhook_registration_repairs_total"]; got != 2 {
			t.Errorf("%v repairs are counted, want 2", got)
		}
	})
}
