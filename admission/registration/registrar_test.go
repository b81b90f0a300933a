// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"sa-controller-manager/admission"
	"sa-controller-manager/internal/events"
)

func (a *apiserver) config() Config {
	return Config{Spec: urlSpec(), Client: a, ServingCA: a.ca, Responder: &a.responds, Recorder: events.NewRecorderTo(a, clock.RealClock{})}
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
		if err := r.Check(); err != nil {
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
	refused := errors.New(`failed calling webhook: Post "https://127.0.0.1:10262/mutate?timeout=5s": dial tcp 127.0.0.1:10262: connect: connection refused`)
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
				err := r.Check()
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
			})
		})
	}
}

// With --pod-token=secret and --token-secrets=manual there is no token for the probe.
func TestProofNeedsNoToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		a.noToken = apierrors.NewServerTimeout(corev1.Resource("serviceaccounts"), "create pod", 1)
		r := run(t, a)
		pause(time.Second)
		wantState(t, r, Registered)
	})
}

func TestBindsOnceReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		a.breaks(errors.New("connection refused"))
		r := run(t, a)
		pause(time.Minute)
		a.breaks(nil)
		pause(maxBackoff)
		wantState(t, r, Registered)
		a.expect(t, "reached", "mutate", "validate")
	})
}

func TestAnyReplicaIsProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		r := run(t, a, func(c *Config) { c.Responder = nil })
		pause(time.Second)
		wantState(t, r, Registered)
	})
}

func TestRepairs(t *testing.T) {
	damaged := func(o *object) *object {
		broken := o.with(nil)
		for _, one := range o.entries {
			one = *one.DeepCopy()
			one.ClientConfig.CABundle = []byte("rubbish")
			broken.entries = append(broken.entries, one)
		}
		return broken
	}
	for name, harm := range map[string]func(*object) *object{
		"caBundle": damaged,
		"emptied":  func(o *object) *object { return o.with(nil) },
		"policy": func(o *object) *object {
			o = o.with([]entry{*o.entries[0].DeepCopy()})
			ignore := admissionregistrationv1.Ignore
			o.entries[0].FailurePolicy = &ignore
			return o
		},
		"another webhook": func(o *object) *object {
			other := *o.entries[0].DeepCopy()
			other.Name = "other.example.org"
			return o.with(append(slices.Clone(o.entries), other))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAPIServer(t)
				r := run(t, a)
				pause(time.Second)
				for k := range kinds {
					a.change(t, k, harm)
				}
				synctest.Wait()
				a.expect(t, "repaired by its first owner", "mutate", "validate")
				wantState(t, r, Registered)
				for k := range kinds {
					o, err := k.in(a).get(t.Context())
					if err != nil || *o.entries[0].FailurePolicy != admissionregistrationv1.Fail {
						t.Errorf("%s: the policy is not repaired, %v", k, err)
					}
				}
			})
			// A new leader has proved nothing yet, and what is damaged is in its way.
			synctest.Test(t, func(t *testing.T) {
				a := newAPIServer(t)
				m, v := urlSpec().entries(a.accepted)
				for k, entries := range [][]entry{m, v} {
					o := (*object)(nil).with(entries)
					if err := kind(k).in(a).put(t.Context(), harm(o)); err != nil {
						t.Fatal(err)
					}
				}
				r := run(t, a)
				pause(2 * time.Second)
				a.expect(t, "repaired by a new leader", "mutate", "validate")
				wantState(t, r, Registered)
			})
		})
	}
}

// A correct webhook may refuse the probe of a new leader, which has to repair the other one.
func TestRepairsOneBesideOneThatRefuses(t *testing.T) {
	for name, harm := range map[string]func(*testing.T, *apiserver){
		"deleted": func(*testing.T, *apiserver) {},
		"emptied": func(t *testing.T, a *apiserver) {
			if err := mutating.in(a).put(t.Context(), (*object)(nil).with(nil)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAPIServer(t)
				a.invalid = apierrors.NewForbidden(corev1.Resource("pods"), "probe", errors.New("pod.Spec.SecurityContext.RunAsUser is forbidden"))
				_, entries := urlSpec().entries(a.accepted)
				if err := validating.in(a).put(t.Context(), (*object)(nil).with(entries)); err != nil {
					t.Fatal(err)
				}
				harm(t, a)
				r := run(t, a)
				pause(2 * time.Second)
				a.expect(t, "repaired", "mutate", "validate")
				wantState(t, r, Registered)
				o, err := validating.in(a).get(t.Context())
				if err != nil || slices.ContainsFunc(o.entries, exempt) {
					t.Errorf("the way past the validating one has stayed: %v, %v", o, err)
				}
			})
		})
	}
}

func TestDeletedIsRecreatedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		r := run(t, a)
		pause(time.Second)
		a.remove(t, mutating)
		a.remove(t, validating)
		pause(2 * settleDelay)
		a.expect(t, "deleted", "mutate", "validate")
		if len(a.recorded()) != 2 || !strings.Contains(a.recorded()[0], "sa-controller-manager webhook unregister --kubeconfig=/etc/kubernetes/admin.conf, or ") {
			t.Errorf("Events: %q, want two that name the command", a.recorded())
		}
		a.remove(t, mutating)
		pause(recreateInterval - 3*settleDelay)
		a.expect(t, "deleted again", "gone", "validate")
		wantState(t, r, Deleted)
		pause(3 * settleDelay)
		a.expect(t, "five minutes later", "mutate", "validate")
		wantState(t, r, Registered)
	})
}

func TestBreakGlass(t *testing.T) {
	off := func(o *object) *object { return o.annotated(AnnotationOff) }
	for name, tc := range map[string]struct {
		reason               string
		breaks               func(*testing.T, *apiserver)
		mutating, validating string
	}{
		"unregister": {
			breaks: func(t *testing.T, a *apiserver) {
				if err := Unregister(t.Context(), a); err != nil {
					t.Fatal(err)
				}
			},
			mutating: "", validating: "",
		},
		"unregister without objects": {
			breaks: func(t *testing.T, a *apiserver) {
				a.change(t, mutating, off)
				a.remove(t, validating)
				a.remove(t, mutating)
				if err := Unregister(t.Context(), a); err != nil {
					t.Fatal(err)
				}
			},
		},
		"annotated and emptied": {
			breaks: func(t *testing.T, a *apiserver) {
				a.change(t, validating, off)
				a.change(t, mutating, func(o *object) *object { return o.with(nil) })
			},
			validating: "validate",
		},
		"annotated and deleted": {
			breaks: func(t *testing.T, a *apiserver) {
				a.change(t, mutating, off)
				a.remove(t, mutating)
				a.remove(t, validating)
			},
			mutating: "", validating: "gone",
		},
		"annotated and deleted again and again": {
			reason: "nobody is flooded, and nothing binds in between",
			breaks: func(t *testing.T, a *apiserver) {
				a.change(t, validating, off)
				a.remove(t, validating)
				a.remove(t, mutating)
				for range 3 {
					pause(2 * settleDelay)
					if a.holds(t, validating) != "gone" {
						a.remove(t, validating)
					}
				}
			},
			mutating: "gone", validating: "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAPIServer(t)
				r := run(t, a)
				pause(time.Second)
				tc.breaks(t, a)
				pause(time.Hour)
				wantState(t, r, Off)
				if got, want := r.Status().Detail, "sa-controller-manager webhook register --kubeconfig=/etc/kubernetes/admin.conf"; !strings.HasSuffix(got, "; to switch it on: "+want) {
					t.Errorf("the status is %q, want it to end with %q", got, want)
				}
				a.expect(t, "switched off", tc.mutating, tc.validating)
				if err := r.Check(); err != nil {
					t.Errorf("what a person has switched off is not ready: %v", err)
				}
				if err := Register(t.Context(), a); err != nil {
					t.Fatal(err)
				}
				pause(time.Second)
				wantState(t, r, Registered)
				a.expect(t, "switched on", "mutate", "validate")
			})
		})
	}
}

// A new leader keeps off too.
func TestBreakGlassOutlivesTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		if err := Unregister(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		r := run(t, a)
		pause(time.Hour)
		wantState(t, r, Off)
		a.expect(t, "switched off", "", "")
		if probes, _ := a.counts(); probes != 0 {
			t.Errorf("%d probes", probes)
		}
	})
}

// Both were deleted after one was annotated. Another leader never saw either.
func TestBreakGlassByDeletionOutlivesTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		first := New(a.config())
		stop, end := start(t, first.Run), start(t, first.Lead)
		pause(time.Second)
		wantState(t, first, Registered)
		a.change(t, validating, func(o *object) *object { return o.annotated(AnnotationOff) })
		a.remove(t, validating)
		a.remove(t, mutating)
		pause(2 * settleDelay)
		if len(a.recorded()) != 1 || !strings.Contains(a.recorded()[0], "without webhooks to keep that") {
			t.Errorf("Events: %q, want one that says why it is there again", a.recorded())
		}
		end()
		stop()
		second := run(t, a)
		pause(time.Hour)
		wantState(t, second, Off)
		a.expect(t, "under the next leader", "gone", "")
	})
}

// Between a write and the watch that tells of it, what was written counts.
func TestWatchedRemembersOff(t *testing.T) {
	t.Parallel()
	w := &watched{}
	gone := (*object)(nil).with(nil).annotated(AnnotationOff)
	for name, want := range map[string]bool{"made again with it": true, "made again without it": false} {
		w.remove(mutating, gone, time.Now())
		w.recreate(mutating, want, time.Now())
		if got := w.get()[mutating]; got.off != want || got.existed {
			t.Errorf("%s: off is %t and existed is %t, want %t and false", name, got.off, got.existed, want)
		}
	}
}

// Somebody who undoes every write does not make us flood the apiserver.
func TestDoesNotFight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		run(t, a)
		pause(time.Minute)
		var fighting atomic.Bool
		fighting.Store(true)
		a.PrependReactor("update", "mutatingwebhookconfigurations", func(action clienttesting.Action) (bool, runtime.Object, error) {
			written := action.(clienttesting.UpdateAction).GetObject().(*admissionregistrationv1.MutatingWebhookConfiguration)
			if fighting.Load() && len(written.Webhooks) > 0 {
				emptied := written.DeepCopy()
				emptied.Webhooks = nil
				time.AfterFunc(time.Millisecond, func() {
					_ = a.Tracker().Update(action.GetResource(), emptied, "")
				})
			}
			return false, nil, nil
		})
		_, before := a.counts()
		a.change(t, mutating, func(o *object) *object { return o.with(nil) })
		pause(time.Minute)
		const want = writeBurst + int(time.Minute/writeInterval)
		if _, after := a.counts(); after-before < want-12 || after-before > want+2 {
			t.Errorf("%d writes in a minute, want about %d", after-before, want)
		}
		fighting.Store(false)
		pause(2 * writeInterval)
		a.expect(t, "after the fight", "mutate", "validate")
	})
}

// A caBundle that changes in steps needs no new proof; another one does.
func TestCABundleChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		first, second := a.accepted, caPEM(t)
		run(t, a)
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
		if err := Register(t.Context(), a); err != nil {
			t.Fatal(err)
		}
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

func TestWaitsForACABundle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		a.ca.set(nil)
		r := run(t, a)
		pause(time.Minute)
		wantState(t, r, Waiting)
		if _, writes := a.counts(); writes != 0 {
			t.Errorf("%d writes without a caBundle", writes)
		}
		a.ca.set(a.accepted)
		pause(time.Second)
		wantState(t, r, Registered)
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
			return true, nil, apierrors.NewForbidden(admissionregistrationv1.Resource("mutatingwebhookconfigurations"), Name, errors.New("no rights"))
		})
		r := run(t, a)
		pause(time.Minute)
		if err := r.Check(); err == nil || !strings.Contains(err.Error(), "no rights") {
			t.Errorf("Check = %v, want it to say why", err)
		}
	})
}

func TestProbeResponderForgets(t *testing.T) {
	t.Parallel()
	a := &ProbeResponder{}
	ask := func(id string, dryRun bool) int {
		response := &admission.Response{}
		object, err := json.Marshal(probePod(id))
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Admit(t.Context(), &admission.Request{DryRun: dryRun, Object: object}, response); err != nil {
			t.Fatal(err)
		}
		return len(response.Patch)
	}
	if ask("real", false) != 0 || a.Arrived("real") {
		t.Error("a Pod that is really created passes for a probe")
	}
	if ask("first", true) != 1 || !a.Arrived("first") {
		t.Error("a probe is not answered")
	}
	for range rememberedProbes {
		ask(rand.Text(), true)
	}
	if a.Arrived("first") || len(a.arrived) != rememberedProbes {
		t.Errorf("%d probes are remembered, want %d", len(a.arrived), rememberedProbes)
	}
}

func TestChangesAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		var mu sync.Mutex
		var told []State
		run(t, a, func(c *Config) {
			c.Changed = func(state State) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, state)
			}
		})
		pause(time.Minute)
		a.change(t, mutating, func(o *object) *object { return o.with(nil) })
		pause(time.Minute)
		if err := Unregister(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		pause(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		want := []State{Proving, Repairing, Registered, Repairing, Registered, Off}
		if !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
	})
}

func TestNamespaceSelector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		covered := func(namespace string) bool {
			selector, err := NamespaceSelector(t.Context(), a)
			if err != nil {
				t.Fatal(err)
			}
			return selector.Matches(labels.Set{"kubernetes.io/metadata.name": namespace})
		}
		if !covered("shop") {
			t.Error("nothing is registered, and a namespace is excluded")
		}
		run(t, a, func(c *Config) { c.ExcludedNamespaces = []string{"bank"} })
		pause(time.Minute)
		if !covered("shop") || covered("bank") {
			t.Errorf("covered: shop %t, bank %t; want the first only", covered("shop"), covered("bank"))
		}
	})
}
