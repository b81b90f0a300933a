// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/ring"
	"sa-controller-manager/signing/testkeys"
)

const (
	rsaID  = "08iLkgQ_1toJ0m7DOaK-qM-kpePj85P8ak2auCJDaGY"
	p256ID = "LswSX_8-TRzY3vSJg2wtCj6KrsbIeMNUDdtbd2GtVO4"
)

// refusedWith wants an error with these words.
func refusedWith(t *testing.T, err error, words string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("got %v, want an error with %q", err, words)
	}
}

func TestActivateAsksFirst(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		options ActivateOptions
		later   time.Duration
		accepts bool
		alone   bool // without a cluster
		want    string
	}{
		"too early":           {"copies of the key set", ActivateOptions{}, 0, true, false, "wait until 2026-11-21T13:00:00Z"},
		"too early, no proof": {"the wait is another matter", ActivateOptions{SkipProof: true}, 0, true, false, "wait until"},
		"in time":             {"", ActivateOptions{}, time.Hour, true, false, ""},
		"forced":              {"", ActivateOptions{Force: true}, 0, true, false, ""},
		"not accepted":        {"dead tokens", ActivateOptions{}, time.Hour, false, false, "cannot sign yet: the apiserver refuses its tokens"},
		"forced, not accepted": {
			"force is about the wait", ActivateOptions{Force: true}, 0, false, false, "with one more --service-account-key-file"},
		"proof skipped":  {"", ActivateOptions{SkipProof: true}, time.Hour, false, false, ""},
		"no cluster":     {"nobody to ask", ActivateOptions{}, time.Hour, true, true, "give --kubeconfig, or --skip-proof"},
		"alone, skipped": {"needs no API", ActivateOptions{SkipProof: true}, time.Hour, true, true, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			next := w.start(testkeys.P256())
			if tc.accepts {
				w.accepts = append(w.accepts, next)
			}
			if tc.alone {
				w.Cluster = nil
			}
			w.clock.Step(tc.later)
			err := w.Activate(t.Context(), tc.options)
			signs, phase := next, ring.Activated
			if tc.want != "" {
				refusedWith(t, err, tc.want)
				signs, phase = rsaID, ring.Published
			} else if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if state := w.state(); state.Active().ID != signs || state.Phase() != phase {
				t.Errorf("%s: %s signs in phase %q", tc.reason, state.Active().ID, state.Phase())
			}
			if asked := w.reviews > 0; asked != (tc.options.SkipProof == false && !tc.alone && (tc.later > 0 || tc.options.Force)) {
				t.Errorf("%s: kube-apiserver was asked: %t", tc.reason, asked)
			}
		})
	}
}

// TestWait lets the cache age pass, then kube-apiserver get to know the key.
func TestWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Clock = clock.RealClock{}
		begin := time.Now()
		next := w.start(testkeys.P256())
		var told []string
		w.Progress = func(what string, _ time.Duration) {
			if !slices.Contains(told, what) {
				told = append(told, what)
			}
		}
		go func() {
			time.Sleep(2 * time.Hour)
			w.mu.Lock()
			defer w.mu.Unlock()
			w.accepts = append(w.accepts, next)
		}()
		w.must(w.Complete(t.Context(), ActivateOptions{Wait: true}))
		if took := time.Since(begin); took < 2*time.Hour || took > 2*time.Hour+2*pollInterval {
			t.Errorf("it took %s", took)
		}
		if w.state().Phase() != ring.Completed || len(told) != 2 {
			t.Errorf("phase %q after %q", w.state().Phase(), told)
		}
	})
}

// TestWaitEnds covers what a wait must notice: the end of its context, and that somebody else has
// decided otherwise.
func TestWaitEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Clock = clock.RealClock{}
		w.start(testkeys.P256())
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := w.Activate(ctx, ActivateOptions{Wait: true}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after the end of the context: %v", err)
		}
		if err := w.AwaitActivation(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after the end of the context: %v", err)
		}
		go func() {
			// Not at the instant at which the command looks: only one of them gets the lock.
			time.Sleep(10*time.Minute + time.Millisecond)
			w.must(w.Rollback(t.Context(), false))
		}()
		begin := time.Now()
		refusedWith(t, w.Activate(t.Context(), ActivateOptions{Wait: true}), "no rotation is in progress")
		if took := time.Since(begin); took > 11*time.Minute {
			t.Errorf("a rollback was noticed after %s", took)
		}
	})
}

func TestPruneAsksFirst(t *testing.T) {
	t.Parallel()
	anonymous := "eyJhbGciOiJSUzI1NiJ9" // a header without a key ID
	cases := map[string]struct {
		reason  string
		secrets []runtime.Object
		options PruneOptions
		later   time.Duration
		signer  []byte
		alone   bool
		want    string // "" if the key goes
	}{
		"nothing needs it": {"", nil, PruneOptions{IDs: []string{rsaID}}, 100 * time.Hour, nil, false, ""},
		"bound tokens":     {"", nil, PruneOptions{IDs: []string{rsaID}}, 47 * time.Hour, nil, false, "bound tokens signed with key " + rsaID},
		"a Secret": {
			"", []runtime.Object{secretOf("a", "KEY")}, PruneOptions{IDs: []string{rsaID}}, 100 * time.Hour, nil, false,
			"1 token Secrets bear key",
		},
		"a Secret of another": {
			"", []runtime.Object{secretOf("a", "OTHER"), secretOf("b", "garbage")}, PruneOptions{IDs: []string{rsaID}}, 100 * time.Hour, nil,
			false, "",
		},
		"no key ID": {"the signature tells", []runtime.Object{secretOf("a", anonymous)}, PruneOptions{IDs: []string{rsaID}}, 100 * time.Hour, nil,
			false,
			"1 token Secrets bear key"},
		"re-spelled": {"kube-apiserver takes it", []runtime.Object{secretOf("a", "SPACED")}, PruneOptions{IDs: []string{rsaID}}, 100 * time.Hour,
			nil, false,
			"1 token Secrets bear key"},
		"re-spelled without a key ID": {"likewise", []runtime.Object{secretOf("a", anonymous+"\n")}, PruneOptions{IDs: []string{rsaID}},
			100 * time.Hour, nil, false,
			"1 token Secrets bear key"},
		"kube-apiserver": {
			"", nil, PruneOptions{IDs: []string{rsaID}}, 100 * time.Hour, testkeys.RSA2048(), false, "kube-apiserver still signs bound tokens",
		},
		"active": {
			"", nil, PruneOptions{IDs: []string{p256ID}, Force: true}, 100 * time.Hour, nil, false, "signs: rotate to another key first",
		},
		"unknown": {"", nil, PruneOptions{IDs: []string{"x"}}, 100 * time.Hour, nil, false, "the ring has no key x"},
		"forced": {
			"a leak", []runtime.Object{secretOf("a", "KEY")}, PruneOptions{IDs: []string{rsaID}, Force: true}, 0, testkeys.RSA2048(), true, "",
		},
		"nobody to ask":     {"", nil, PruneOptions{IDs: []string{rsaID}}, 100 * time.Hour, nil, true, "give --kubeconfig"},
		"all, and it stays": {"not an error", nil, PruneOptions{}, 0, nil, false, "stays"},
		"all":               {"", nil, PruneOptions{}, 100 * time.Hour, nil, false, ""},
		"dry run":           {"", nil, PruneOptions{DryRun: true}, 100 * time.Hour, nil, false, "dry"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, object := range tc.secrets {
				data := object.(*corev1.Secret).Data
				switch string(data["token"]) {
				case "KEY":
					data["token"] = []byte(tokenOf(t, private(t, testkeys.RSA2048())))
				case "OTHER":
					data["token"] = []byte(tokenOf(t, private(t, testkeys.P521())))
				case "SPACED":
					data["token"] = []byte("\t" + tokenOf(t, private(t, testkeys.RSA2048())) + "\n")
				case anonymous:
					data["token"] = []byte(withoutKeyID(t, anonymous))
				case anonymous + "\n":
					data["token"] = []byte(withoutKeyID(t, anonymous) + "\n")
				}
			}
			w := newWorld(t, tc.secrets...)
			w.accepts = append(w.accepts, w.start(testkeys.P256()))
			w.must(w.Complete(t.Context(), ActivateOptions{Force: true}))
			if tc.signer != nil {
				w.signer = private(t, tc.signer)
			}
			if tc.alone {
				w.Cluster = nil
			}
			w.clock.Step(tc.later)
			pruned, err := w.Prune(t.Context(), tc.options)
			_, stays := w.state().Key(rsaID)
			switch tc.want {
			case "":
				if err != nil || stays || len(pruned) != 1 || !pruned[0].Pruned || pruned[0].DryRun {
					t.Errorf("%s: %v, %v, the key stays: %t", tc.reason, pruned, err, stays)
				}
			case "stays":
				if err != nil || !stays || len(pruned) != 1 || pruned[0].Pruned || pruned[0].Reason == "" {
					t.Errorf("%s: %v, %v, the key stays: %t", tc.reason, pruned, err, stays)
				}
			case "dry":
				if err != nil || !stays || len(pruned) != 1 || !pruned[0].Pruned || !pruned[0].DryRun || pruned[0].KeyID != rsaID {
					t.Errorf("%s: %v, %v, the key stays: %t", tc.reason, pruned, err, stays)
				}
			default:
				refusedWith(t, err, tc.want)
				if !stays {
					t.Errorf("%s: the key is gone", tc.reason)
				}
			}
		})
	}
}

// TestPruneFindsALateSigner: a kube-apiserver that nobody has told goes on signing, and its tokens
// are waited for.
func TestPruneFindsALateSigner(t *testing.T) {
	t.Parallel()
	w, other := newWorld(t), newWorld(t)
	w.accepts = append(w.accepts, w.start(testkeys.P256()))
	w.must(w.Complete(t.Context(), ActivateOptions{Force: true}))
	w.Cluster.Others = []APIServer{{URL: "https://second.example", Client: other.kube}}
	other.signer = private(t, testkeys.RSA2048())
	w.clock.Step(100 * time.Hour)
	_, err := w.Prune(t.Context(), PruneOptions{IDs: []string{rsaID}, DryRun: true})
	refusedWith(t, err, "kube-apiserver still signs bound tokens with key "+rsaID)
	const changed = "the ring has changed"
	if key, _ := w.state().Key(rsaID); !key.RetiredAt.Equal(epoch) || strings.Contains(err.Error(), changed) {
		t.Errorf("a dry run: retired at %s: %v", key.RetiredAt, err)
	}
	before := w.state().Generation
	_, err = w.Prune(t.Context(), PruneOptions{IDs: []string{rsaID}})
	refusedWith(t, err, "kube-apiserver still signs bound tokens with key "+rsaID)
	refusedWith(t, err, changed)
	refusedWith(t, err, "counted from the last time that prune saw this") // and not from the end of it, see below
	if after := w.state().Generation; after == before {
		t.Errorf("generation %d as before, in spite of: %v", after, err)
	}
	pruned, err := w.Prune(t.Context(), PruneOptions{})
	w.must(err)
	if len(pruned) != 1 || !strings.Contains(pruned[0].Reason, changed) {
		t.Errorf("without a name: %+v, want it to say that %s", pruned, changed)
	}
	other.signer = private(t, testkeys.P256())
	w.clock.Step(47 * time.Hour)
	_, err = w.Prune(t.Context(), PruneOptions{IDs: []string{rsaID}})
	if strings.Contains(err.Error(), changed) {
		t.Errorf("nobody signs with it any more, and yet: %v", err)
	}
	refusedWith(t, err, "may live for 48h0m0s after it was retired at 2026-11-25T16:00:00Z")
	w.clock.Step(time.Hour)
	_, err = w.Prune(t.Context(), PruneOptions{IDs: []string{rsaID}})
	w.must(err)
}

// withoutKeyID is a token as very old releases wrote it.
func withoutKeyID(t *testing.T, header string) string {
	t.Helper()
	payload := strings.Split(tokenOf(t, private(t, testkeys.RSA2048())), ".")[1]
	return header + "." + payload + "." + signatureOver(t, header+"."+payload)
}

// TestReadOnly is about a mounted Secret: no step is begun.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	mount := t.TempDir()
	w.must(os.Symlink(filepath.Dir(w.File.Path()), filepath.Join(mount, "..data")))
	w.must(os.Symlink(filepath.Join("..data", "ring.json"), filepath.Join(mount, "ring.json")))
	w.File = ring.At(filepath.Join(mount, "ring.json"))
	_, start := w.Start(t.Context(), func(signing.PublicKey) bool { return true },
		func(signing.PublicKey) (*signing.PrivateKey, error) { return testkeys.Parse(testkeys.P256()), nil })
	_, prune := w.Prune(t.Context(), PruneOptions{})
	for name, err := range map[string]error{
		"start": start, "prune": prune, "activate": w.Activate(t.Context(), ActivateOptions{}),
		"complete": w.Complete(t.Context(), ActivateOptions{}), "rollback": w.Rollback(t.Context(), false),
	} {
		if _, ok := errors.AsType[*ring.ReadOnlyError](err); !ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
