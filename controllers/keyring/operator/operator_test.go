// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"sa-controller-manager/controllers/keyring/hosts"
	"sa-controller-manager/controllers/keyring/ring"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
)

const (
	rsaID  = "08iLkgQ_1toJ0m7DOaK-qM-kpePj85P8ak2auCJDaGY"
	p256ID = "LswSX_8-TRzY3vSJg2wtCj6KrsbIeMNUDdtbd2GtVO4"
)

// refusedWith wants an error with these words.
func refusedWith(t *testing.T, err error, words string) {
	t.Helper()
	testutil.Expect(t, err != nil && strings.Contains(err.Error(), words), "got %v, want an error with %q", err, words)
}

// TestRotateAsksFirst: RSA signs and P-256 is next, published for a minute. --force overrides caches alone.
func TestRotateAsksFirst(t *testing.T) {
	t.Parallel()
	late := func(w *world) {
		w.edit(func(p *hosts.Published) {
			entry := p.Entries[0]
			entry.Host, entry.Keys = "cp-2", map[string]signing.Role{rsaID: signing.Active}
			p.Entries = append(p.Entries, entry)
		})
	}
	away := func(minutes ...int64) func(w *world) {
		return func(w *world) {
			w.edit(func(p *hosts.Published) {
				entry := p.Entries[0]
				p.Entries = nil
				for i, minutes := range minutes {
					entry.Host, entry.Away = fmt.Sprintf("cp-%d", i+1), map[string]hosts.Away{}
					if minutes >= 0 {
						entry.Away[rsaID] = hosts.Away{Reason: "lost", Minutes: minutes}
					}
					p.Entries = append(p.Entries, entry)
				}
			})
		}
	}
	for name, tc := range map[string]struct {
		reason string
		shown  time.Duration
		change func(*world)
		RotateOptions
		says string // in its progress
		want string // "" if P-256 signs
	}{
		"in time":           {shown: time.Hour},
		"too early":         {shown: time.Minute, want: "copies of the key set may be without key " + p256ID},
		"forced":            {shown: time.Minute, RotateOptions: RotateOptions{Force: true}},
		"lost":              {shown: time.Minute, change: away(10, 11), says: "as if it was forced: no host could sign"},
		"away for a moment": {shown: time.Minute, change: away(10, 9), want: "copies of the key set may be without"},
		"lost on one host":  {shown: time.Minute, change: away(10, -1), want: "copies of the key set may be without"},
		"lost, from a timer": {
			shown: time.Minute, change: away(10), RotateOptions: RotateOptions{OlderThan: time.Minute},
			want: "copies of the key set may be without",
		},
		"young": {shown: time.Hour, RotateOptions: RotateOptions{OlderThan: 2 * time.Hour}, want: "which is less than 2h0m0s"},
		"a host is late": {
			shown: time.Hour, change: late, RotateOptions: RotateOptions{Force: true}, want: "host cp-2 does not have the next key",
		},
		"it is lost": {shown: time.Hour, change: late, RotateOptions: RotateOptions{Without: []string{"cp-2"}}},
		"not accepted": {
			shown: time.Hour, change: func(w *world) { w.accepts = w.accepts[:1] }, RotateOptions: RotateOptions{Force: true},
			want: "cannot sign yet: kube-apiserver refuses its tokens",
		},
		"no cluster": {shown: time.Hour, change: func(w *world) { w.Cluster = nil }, want: "no kubeconfig was found"},
		"another host is at it": {shown: time.Hour, change: func(w *world) {
			w.edit(func(p *hosts.Published) { p.Claim = hosts.Claim{Generation: 2, Host: "cp-2"} })
		}, want: "host cp-2 is making generation 2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.show("cp-1", tc.shown)
			if tc.change != nil {
				tc.change(w)
			}
			before, said := w.state(), ""
			w.Progress = func(what string, _ time.Duration) { said = what }
			w.clock.Step(time.Hour)
			err := w.Rotate(t.Context(), tc.RotateOptions)
			if tc.want != "" {
				refusedWith(t, err, tc.want)
				testutil.Expect(t, w.state().Version() == before.Version(), "%s: refused, and changed", tc.reason)
				return
			}
			w.must(err)
			testutil.Expect(t, strings.Contains(said, tc.says) && (tc.says != "" || said == ""), "%s: said %q, want %q", tc.reason, said,
				tc.says)
			state := w.state()
			next, _ := state.Next()
			testutil.Expect(t, state.Active().ID == p256ID && state.Previous == rsaID && next.Kind() == "P-256",
				"%s: %s signs, %s is previous, the next one is a %s", tc.reason, state.Active().ID, state.Previous, next.Kind())
		})
	}
}

// TestWait lets the cache age pass, then kube-apiserver get to know the key.
func TestWait(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.Clock, w.Policy.CacheAge = clock.RealClock{}, time.Minute
		w.show("cp-1", 0)
		w.accepts = []string{rsaID}
		begin := time.Now()
		var told []string
		w.Progress = func(what string, _ time.Duration) {
			w.show("cp-1", time.Since(begin)) // it lives
			if !slices.Contains(told, what) {
				told = append(told, what)
			}
		}
		go func() {
			time.Sleep(2 * time.Minute)
			w.mu.Lock()
			defer w.mu.Unlock()
			w.accepts = append(w.accepts, p256ID)
		}()
		w.must(w.Rotate(t.Context(), RotateOptions{Wait: true}))
		if took := time.Since(begin); took < 2*time.Minute || took > 2*time.Minute+2*pollInterval ||
			w.state().Active().ID != p256ID || len(told) != 1 {
			t.Errorf("it took %s, and said %q", took, told)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		w.show("cp-1", 0)
		err := w.Rotate(ctx, RotateOptions{Wait: true})
		testutil.Expect(t, errors.Is(err, context.DeadlineExceeded), "after the end of the context: %v", err)
	})
}

// TestWaitForKubeAPIServer: a wait goes on while waiting may help, and otherwise ends with the reason.
func TestWaitForKubeAPIServer(t *testing.T) {
	t.Parallel()
	reviews := schema.GroupResource{Group: "authentication.k8s.io", Resource: "tokenreviews"}
	forbidden := apierrors.NewForbidden(reviews, "", errors.New("no role"))
	for name, tc := range map[string]struct {
		reason string
		err    error         // of every review
		lasts  time.Duration // for how long
		change func(*world)
		want   func(error) bool // nil if it rotates
	}{
		"no such account": {
			reason: "a name that is mistyped", change: func(w *world) { w.Cluster.Account = "nobody" }, want: apierrors.IsNotFound,
		},
		"forbidden":         {err: forbidden, lasts: time.Hour, want: apierrors.IsForbidden},
		"it has just begun": {reason: "it has not read the roles yet", err: forbidden, lasts: 2 * pollInterval},
		"it is away": {
			reason: "it is being restarted", err: &url.Error{Op: "Post", URL: "https://a", Err: errors.New("connection refused")},
			lasts: time.Minute,
		},
		"all of it is away": {reason: "the restart that it waits for", change: func(w *world) {
			w.accepts = []string{rsaID}
			begin := time.Now()
			w.kube.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
				since := time.Since(begin)
				if since > time.Minute {
					w.accepts = []string{rsaID, p256ID}
				}
				return since > 0 && since < time.Minute, nil, &url.Error{Op: "Get", URL: "https://a", Err: errors.New("connection refused")}
			})
		}},
		"it was never there": {
			reason: "an address that is mistyped", change: func(w *world) {
				w.kube.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, &url.Error{Op: "Get", URL: "https://a", Err: errors.New("connection refused")}
				})
			}, want: func(err error) bool { return strings.Contains(err.Error(), "connection refused") },
		},
		"it is busy": {reason: "it says so", err: apierrors.NewTooManyRequests("later", 1), lasts: time.Minute},
	} {
		testutil.Bubble(t, name, func(t *testing.T) {
			w := newWorld(t)
			w.Clock = clock.RealClock{}
			w.show("cp-1", time.Hour)
			begin := time.Now()
			w.kube.PrependReactor("create", "tokenreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
				return time.Since(begin) < tc.lasts, nil, tc.err
			})
			if tc.change != nil {
				tc.change(w)
			}
			err := w.Rotate(t.Context(), RotateOptions{Wait: true})
			if tc.want == nil {
				w.must(err)
			} else if !tc.want(err) || time.Since(begin) > time.Minute {
				t.Errorf("%s: after %s: %v", tc.reason, time.Since(begin), err)
			}
		})
	}
}

// TestAnswersAreOfTheRingThatWasRead: another command changes the ring while kube-apiserver is asked.
func TestAnswersAreOfTheRingThatWasRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	done := false
	w.kube.PrependReactor("create", "tokenreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		if !done {
			done = true
			w.must(w.File.Update(w.state().Generation, func(state ring.State) (ring.State, error) {
				return ring.Next(state, ring.KeyOf(testkeys.Parse(testkeys.P384())), epoch)
			}))
		}
		return false, nil, nil // the world answers
	})
	err := w.Rotate(t.Context(), RotateOptions{Force: true})
	testutil.Expect(t, err != nil && strings.Contains(err.Error(), "changed meanwhile") && w.state().Active().ID == rsaID,
		"%s signs after %v",
		w.state().Active().ID, err)
}

// TestNextAsksFirst: a next key that was revoked elsewhere is replaced by one of its kind, and a ring that is not the
// newest is not changed.
func TestNextAsksFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.show("cp-1", time.Hour)
	w.edit(func(p *hosts.Published) {
		p.Removed = append(p.Removed, ring.Removed{ID: p256ID, Digest: p256ID, Reason: ring.Revoked})
	})
	refusedWith(t, w.Rotate(t.Context(), RotateOptions{}), "is revoked, and in the ring file of this host still: bring a newer ring here "+
		"(keys import), or: keys revoke "+p256ID)
	testutil.Get(w.Revoke(t.Context(), RevokeOptions{IDs: []string{p256ID}}))(t)
	next, _ := w.state().Next()
	testutil.Expect(t, next.ID != p256ID, "the revoked key stays")
	later := *w.Operator
	later.File, later.Host = ring.At(filepath.Join(t.TempDir(), "ring.json")), "cp-2"
	err := copyFile(w.File, later.File)
	w.must(err)
	w.must(later.Next(t.Context(), Successor{Algorithm: "P-384"}))
	newer := testutil.Get(later.File.Read())(t)
	w.edit(func(p *hosts.Published) {
		entry := hosts.EntryOf(newer)
		entry.Host = "cp-2"
		p.Entries = append(p.Entries, entry)
	})
	refusedWith(t, w.Next(t.Context(), Successor{Algorithm: "P-521"}), "is older than that of host cp-2")
	w.must(w.Next(t.Context(), Successor{Algorithm: "P-521"}, "cp-2"))
}

func TestNextAndRollback(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must(w.Next(t.Context(), Successor{}))
	if next, _ := w.state().Next(); next.Kind() != "RSA-2048" {
		t.Errorf("the next key is a %s, want the kind of the active key", next.Kind())
	}
	err := w.Next(t.Context(), Successor{})
	testutil.Expect(t, ring.IsDone(err), "again: %v", err)
	w.must(w.Next(t.Context(), Successor{Algorithm: "P-384"}))
	refusedWith(t, w.Rollback(t.Context(), nil), "no rotation to roll back")
	next, _ := w.state().Next()
	w.accepts = append(w.accepts, next.ID)
	w.show("cp-1", time.Hour)
	w.must(w.Rotate(t.Context(), RotateOptions{}))
	w.accepts = w.accepts[1:]
	w.show("cp-1", 0)
	refusedWith(t, w.Rollback(t.Context(), nil), "key "+rsaID+" cannot sign yet")
	w.accepts = append(w.accepts, rsaID)
	w.edit(func(p *hosts.Published) { p.Entries[0].Signs = nil })
	refusedWith(t, w.Rollback(t.Context(), nil), "host cp-1 cannot sign with the retired key "+rsaID)
	w.show("cp-1", 0)
	next, _ = w.state().Next()
	w.edit(func(p *hosts.Published) { p.Entries[0].SignsWith = next.ID })
	refusedWith(t, w.Rollback(t.Context(), nil), "the next key "+next.ID+" has signed on host cp-1")
	w.show("cp-1", 0)
	w.must(w.Rollback(t.Context(), nil))
	if after, ok := w.state().Next(); w.state().Active().ID != rsaID || ok {
		t.Errorf("%s signs, and the next key is a %s as the one that was undone", w.state().Active().ID, after.Kind())
	}
	w.show("cp-1", 0)
	refusedWith(t, w.Rollback(t.Context(), nil), "no rotation to roll back")
}

// TestInit: a second ring beside a live one would be forked from it, and a revoked key does not come back.
func TestInit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.File = ring.At(filepath.Join(t.TempDir(), "ring.json"))
	begin := func(active []byte) error {
		return w.Init(t.Context(), testkeys.Parse(active), []signing.PublicKey{testkeys.Parse(testkeys.P384()).Public()}, Successor{})
	}
	refusedWith(t, begin(testkeys.RSA2048()), "this host has used a key ring (generation 1), and its file cannot be read: file does not "+
		"exist: no other host has it")
	w.Host = "cp-2"
	refusedWith(t, begin(testkeys.RSA2048()), "host cp-1 has a key ring, and a second one would be forked from it")
	revoked := func(ids ...string) {
		w.edit(func(p *hosts.Published) {
			p.Entries = nil
			for _, id := range ids {
				p.Removed = append(p.Removed, ring.Removed{ID: "x", Digest: id, Reason: ring.Revoked})
			}
		})
	}
	revoked(testkeys.Parse(testkeys.P384()).ID(), p256ID)
	refusedWith(t, begin(testkeys.P256()), "key "+p256ID+" was revoked")
	w.must(begin(testkeys.RSA2048()))
	if keys := w.state().Keys; len(keys) != 2 || keys[0].ID != rsaID || keys[1].Role != signing.Next {
		t.Errorf("the ring has %+v, want the active and a next key", keys)
	}
	copied := w.File
	w.File = ring.At(filepath.Join(t.TempDir(), "ring.json"))
	revoked(rsaID)
	testutil.Get(w.Import(t.Context(), copied, ImportOptions{}))(t)
	ring := w.state().Ring()
	testutil.Expect(t, ring.ActiveID() != rsaID && ring.KeySet().Revoked(rsaID), "a key that was revoked since has come back by a copy")
}

// TestLost: the ring file of the only host that has it is gone. init, rotate and an old copy do not take its place in silence.
func TestLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	backup := ring.At(filepath.Join(t.TempDir(), "backup.json"))
	err := copyFile(w.File, backup)
	w.must(err)
	w.show("cp-1", time.Hour)
	w.must(w.Rotate(t.Context(), RotateOptions{Force: true}))
	w.show("cp-1", time.Hour)
	lost := w.state()
	w.File = ring.At(filepath.Join(t.TempDir(), "ring.json"))
	old := func() *ring.File { return backup }
	const restored = "is not the one that it has used (generation 2), and not a newer one"
	_, err = w.Import(t.Context(), old(), ImportOptions{})
	refusedWith(t, err, restored)
	err = copyFile(backup, w.File) // as a restore of the node does
	w.must(err)
	refusedWith(t, w.Rotate(t.Context(), RotateOptions{Force: true}), restored)
	refusedWith(t, w.Next(t.Context(), Successor{Algorithm: "P-384"}), restored)
	_, err = w.Prune(t.Context())
	refusedWith(t, err, restored)
	w.edit(func(p *hosts.Published) {
		entry := p.Entries[0]
		entry.Host = "cp-2"
		p.Entries = append(p.Entries, entry)
	})
	_, err = w.Import(t.Context(), old(), ImportOptions{AcceptOlder: true})
	refusedWith(t, err, "host cp-2 has the ring that this host has used: bring that one here")
	w.must(w.Forget(t.Context(), "cp-2"))
	notes, err := w.Import(t.Context(), old(), ImportOptions{AcceptOlder: true})
	next, _ := lost.Next()
	if state := w.state(); err != nil || !state.Knows(lost.Version()) || state.Active().ID != p256ID ||
		len(notes) != 2 || !strings.Contains(notes[1], "the next key "+next.ID+" is lost") {
		t.Errorf("generation %d, %s signs, notes %q, %v", state.Generation, state.Active().ID, notes, err)
	}
	w.show("cp-1", time.Hour)
	w.must(w.Next(t.Context(), Successor{Algorithm: "P-384"}))
	_, err = w.Import(t.Context(), w.File, ImportOptions{AcceptOlder: true})
	refusedWith(t, err, "is not older")
}

// TestImportOfAFork: the list on the host that has to give way names another way out than the import there, which said that no
// other host has the ring.
func TestImportOfAFork(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	smaller := *w.Operator
	smaller.File, smaller.Host = ring.At(filepath.Join(t.TempDir(), "ring.json")), "cp-2"
	w.must(copyFile(w.File, smaller.File))
	w.must(w.Next(t.Context(), Successor{Algorithm: "P-384"}))
	w.edit(func(p *hosts.Published) { p.Entries, p.Claim = nil, hosts.Claim{} })
	w.must(smaller.Next(t.Context(), Successor{Algorithm: "P-521"}))
	w.show("cp-1", 0)
	w.show("cp-3", 0)
	fork := testutil.Get(smaller.File.Read())(t)
	w.edit(func(p *hosts.Published) {
		entry := hosts.EntryOf(fork)
		entry.Host = "cp-2"
		p.Entries = append(p.Entries, entry)
	})
	_, err := smaller.Import(t.Context(), w.File, ImportOptions{})
	refusedWith(t, err, "and not a newer one: was an old copy put back? Tokens of the keys that it lacks are refused: on host cp-1 take "+
		"the keys of that of host cp-2 (keys import --join-fork), then bring the result to cp-2")
	testutil.Get(w.Import(t.Context(), smaller.File, ImportOptions{Join: true}))(t)
	w.show("cp-1", 0)
	testutil.Get(smaller.Import(t.Context(), w.File, ImportOptions{}))(t)
}

// TestImportOfAStranger: a host without a ring takes none that comes from nowhere, such as that of another cluster, and
// nothing is revoked by guess while there is one.
func TestImportOfAStranger(t *testing.T) {
	t.Parallel()
	w, other := newWorld(t), newWorld(t)
	old := ring.At(filepath.Join(t.TempDir(), "old.json"))
	err := copyFile(w.File, old)
	w.must(err)
	w.show("cp-1", time.Hour)
	w.must(w.Rotate(t.Context(), RotateOptions{Force: true}))
	w.show("cp-1", time.Hour)
	fresh := *w.Operator
	fresh.File, fresh.Host = ring.At(filepath.Join(t.TempDir(), "ring.json")), "cp-2"
	for _, file := range []*ring.File{old, other.File} {
		_, err := fresh.Import(t.Context(), file, ImportOptions{})
		refusedWith(t, err, "has not come from any ring that is published")
	}
	testutil.Get(fresh.Import(t.Context(), w.File, ImportOptions{}))(t)
	w.edit(func(p *hosts.Published) {
		entry := hosts.EntryOf(other.state())
		entry.Host, entry.Generation, entry.History = "cp-3", 11, []string{"11:other"}
		p.Entries = append(p.Entries, entry)
	})
	_, err = w.Revoke(t.Context(), RevokeOptions{Active: true})
	refusedWith(t, err, "rings are forked, and several keys sign (cp-1: "+p256ID+", cp-3: "+rsaID+")")
	p := w.published()
	testutil.Expect(t, len(p.Removed) == 0, "revoked: %+v", p.Removed)
}

func TestPruneAsksFirst(t *testing.T) {
	t.Parallel()
	token := legacyToken(t, testkeys.RSA2048())
	for name, tc := range map[string]struct {
		reason string
		token  string
		later  time.Duration
		change func(*world)
		want   string // why the key stays, "" if it goes
		err    string
		asks   bool // by a Secret, so not in a dry run
	}{
		"nothing needs it":    {later: 100 * time.Hour},
		"bound tokens":        {later: 47 * time.Hour, want: "bound tokens signed with key " + rsaID},
		"a Secret":            {token: token, later: 100 * time.Hour, want: "1 token Secrets bear key"},
		"a Secret of another": {token: legacyToken(t, testkeys.P521()), later: 100 * time.Hour},
		"no token":            {token: "garbage", later: 100 * time.Hour},
		"no key ID": {
			reason: "the signature tells", token: withoutKeyID(t), later: 100 * time.Hour, want: "1 token Secrets bear key",
		},
		"re-spelled": {
			reason: "kube-apiserver takes it", token: "\t" + token + "\n", later: 100 * time.Hour, want: "1 token Secrets bear key",
		},
		"kube-apiserver": {
			later: 100 * time.Hour, change: func(w *world) { w.signer = testkeys.RSA2048() },
			want: "kube-apiserver still signs with key",
		},
		"kube-controller-manager": {
			reason: "it has the key file that was there when it started", later: 100 * time.Hour,
			change: func(w *world) {
				w.must(w.kube.Tracker().Add(kcmLease()))
				w.kube.PrependWatchReactor("secrets", filling(w.t, w.kube.Clientset, "kube-controller-manager", testkeys.RSA2048()))
			},
			want: "kube-controller-manager on host cp-2 still signs with key", asks: true,
		},
		"a host": {
			later: 100 * time.Hour, change: func(w *world) {
				w.show("cp-2", 0)
				w.edit(func(p *hosts.Published) { p.Entries[1].SignsWith = rsaID })
			}, want: "host cp-2 still signs with key",
		},
		"nobody to ask": {later: 100 * time.Hour, change: func(w *world) { w.Cluster = nil }, err: "no kubeconfig was found"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var secrets []runtime.Object
			if tc.token != "" {
				secrets = []runtime.Object{tokenSecret("a", tc.token)}
			}
			w := newWorld(t, secrets...)
			w.must(w.Rotate(t.Context(), RotateOptions{Force: true}))
			w.show("cp-1", 0)
			_, err := w.Prune(t.Context()) // the first one sees that all follow
			w.must(err)
			w.clock.Step(tc.later)
			w.show("cp-1", 0)
			if tc.change != nil {
				tc.change(w)
			}
			file := w.File
			for _, dryRun := range []bool{true, false} {
				if w.File = file; dryRun {
					w.File = file.DryRun()
				}
				if dryRun && tc.asks {
					continue
				}
				pruned, err := w.Prune(t.Context())
				w.File = file
				_, stays := w.state().Key(rsaID)
				switch {
				case tc.err != "":
					refusedWith(t, err, tc.err)
				case err != nil || len(pruned) != 1 || pruned[0].Pruned != (tc.want == "") ||
					!strings.Contains(pruned[0].Reason, tc.want):
					t.Errorf("%s: %+v, %v; want %q", tc.reason, pruned, err, tc.want)
				case stays != (dryRun || tc.want != ""):
					t.Errorf("%s: the key stays: %t", tc.reason, stays)
				}
			}
		})
	}
}

// TestPruneFindsALateSigner: a kube-apiserver with key files signs on for months, until it is restarted. The
// life of its tokens counts from then.
func TestPruneFindsALateSigner(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must(w.Rotate(t.Context(), RotateOptions{Force: true}))
	w.signer = testkeys.RSA2048()
	prune := func(want string) {
		t.Helper()
		w.show("cp-1", 0)
		pruned := testutil.Get(w.Prune(t.Context()))(t)
		testutil.Expect(t, len(pruned) == 1 && pruned[0].Pruned == (want == "") && strings.Contains(pruned[0].Reason, want), "%+v, want %q",
			pruned, want)
	}
	w.clock.Step(100 * time.Hour)
	prune("still signs with")
	w.signer = testkeys.P256()
	prune("may live for 48h0m0s after 2026-11-25T16:00:00Z")
	w.clock.Step(47 * time.Hour)
	prune("may live for 48h0m0s after 2026-11-25T16:00:00Z")
	w.signer = testkeys.RSA2048() // it was restored from a backup
	prune("still signs with")
	w.signer = testkeys.P256()
	prune("may live for 48h0m0s after 2026-11-27T15:00:00Z")
	w.clock.Step(49 * time.Hour)
	prune("")
	again, err := w.Prune(t.Context())
	testutil.Expect(t, len(again) == 0 && err == nil, "once nothing is retired: %+v, %v", again, err)
}

// TestRevoke takes the active key and its predecessor out, and waits until kube-apiserver has neither, wherever
// their private halves are. A second time it only checks.
func TestRevoke(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		w := newWorld(t, tokenSecret("mine", legacyToken(t, testkeys.RSA2048())))
		w.Clock = clock.RealClock{}
		w.show("cp-1", 0)
		other := testkeys.Parse(testkeys.RSA2048()).Public()
		other.ID = "vendor/1" // the same key, as another file has it
		w.publishes = []signing.PublicKey{other}
		_, err := w.Revoke(t.Context(), RevokeOptions{IDs: []string{"nobody"}})
		refusedWith(t, err, "no ring has a key nobody")
		_, err = w.Revoke(t.Context(), RevokeOptions{
			IDs: []string{rsaID}, Confirm: func(_ context.Context, warning string) error { return errors.New(warning) },
		})
		refusedWith(t, err, "those in Secrets")
		testutil.Require(t, w.state().Active().ID == rsaID, "the key has gone without a yes")
		begun, said := time.Now(), ""
		w.Progress = func(what string, _ time.Duration) {
			said += what
			w.mu.Lock()
			defer w.mu.Unlock()
			if time.Since(begun) > 5*time.Second {
				w.publishes = nil
			}
		}
		notes := testutil.Get(w.Revoke(t.Context(), RevokeOptions{IDs: []string{rsaID}}))(t)
		state := w.state()
		next, _ := state.Next()
		testutil.Expect(t, state.Active().ID == p256ID && next.Kind() == "RSA-2048" && state.Revoked.Has(other),
			"%s signs, the next key is a %s, removed: %+v", state.Active().ID, next.Kind(), state.Removed)
		p := w.published()
		testutil.Expect(t, len(p.Removed) == 1 && p.Removed[0].ID == rsaID, "other hosts do not see it: %+v", p.Removed)
		if took := time.Since(begun); took > 6*time.Second || !strings.Contains(said, "kube-apiserver accepts key "+rsaID) ||
			!strings.Contains(strings.Join(notes, "\n"), "relying parties outside of the cluster accept them until") {
			t.Errorf("it took %v, said %q, and left %q", took, said, notes)
		}
		testutil.Get(w.Revoke(t.Context(), RevokeOptions{IDs: []string{rsaID}}))(t)
		testutil.Expect(t, w.state().Version() == state.Version(), "a second time has changed the ring")
		testutil.Get(w.Revoke(t.Context(), RevokeOptions{IDs: []string{p256ID, next.ID}}))(t)
		fresh := w.state().Active().ID
		testutil.Expect(t, fresh != p256ID && fresh != next.ID, "%s signs, which was revoked", fresh)
	})
}

// TestRevokeWithKeyFiles: a kube-apiserver has the key until it is restarted, and the command names each that does.
func TestRevokeWithKeyFiles(t *testing.T) {
	t.Parallel()
	w, second := newWorld(t), newWorld(t)
	w.edit(func(p *hosts.Published) { p.Entries[0].Signer = false })
	w.Cluster.Others = []APIServer{{URL: "https://cp-2:6443", Client: second.kube}}
	leaked := []signing.PublicKey{testkeys.Parse(testkeys.RSA2048()).Public()}
	w.publishes, second.publishes = leaked, leaked
	for _, step := range []struct {
		change func()
		still  string
	}{
		{
			func() {}, "the kube-apiserver of the kubeconfig accepts key " + rsaID +
				", which is revoked; with key files, bring the ring there",
		},
		{
			func() { w.publishes = nil }, "https://cp-2:6443 accepts key " + rsaID +
				", which is revoked; with key files, bring the ring there",
		},
		{func() { second.jwks = new("{") }, "https://cp-2:6443: it is not known which keys it accepts: read kube-apiserver's keys at " +
			"/openid/v1/jwks: "},
		// Its issuer is no https URL: no key set was found, and a revocation never succeeded.
		{
			func() { second.jwks = new("") }, "https://cp-2:6443 accepts key " + rsaID +
				", which is revoked; with key files, bring the ring there",
		},
	} {
		step.change()
		_, err := w.Revoke(t.Context(), RevokeOptions{IDs: []string{rsaID}})
		refusedWith(t, err, "revoked, but: "+step.still)
		testutil.Expect(t, w.state().Active().ID == p256ID, "the key is in the ring")
	}
	second.accepts = []string{p256ID}
	testutil.Get(w.Revoke(t.Context(), RevokeOptions{IDs: []string{rsaID}}))(t)
	second.publishes, second.jwks = nil, nil
	testutil.Get(w.Revoke(t.Context(), RevokeOptions{IDs: []string{rsaID}}))(t)
	w.Cluster = nil
	before := w.state()
	for _, options := range []RevokeOptions{{Active: true}, {IDs: []string{rsaID}}} {
		_, err := w.Revoke(t.Context(), options)
		refusedWith(t, err, "no kubeconfig was found")
	}
	if after := w.state(); len(after.Revoked) != len(before.Revoked) {
		t.Errorf("without the cluster the active key of a file was revoked, which may be late: %+v", after.Revoked)
	}
}

// withoutKeyID is a token as very old releases wrote it.
func withoutKeyID(t *testing.T) string {
	t.Helper()
	claims := jwt.MapClaims{}
	_, _, err := jwt.NewParser().ParseUnverified(legacyToken(t, testkeys.RSA2048()), claims)
	testutil.Must(t, err)
	key := testutil.Get(jwt.ParseRSAPrivateKeyFromPEM(testkeys.RSA2048()))(t)
	return testutil.Get(jwt.NewWithClaims(jwt.SigningMethodRS256, claims).SignedString(key))(t)
}
