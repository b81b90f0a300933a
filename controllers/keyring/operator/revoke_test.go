// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"sa-controller-manager/controllers/controllertest"
	"sa-controller-manager/controllers/keyring/hosts"
	"sa-controller-manager/controllers/keyring/ring"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing/testkeys"
)

// away is a kube-apiserver whose external signer is dead: a review of a token with a key that it does not have waits for that.
type away struct{ kubernetes.Interface }

func (a away) AuthenticationV1() authenticationclient.AuthenticationV1Interface {
	return waiter{a.Interface.AuthenticationV1()}
}

type waiter struct {
	authenticationclient.AuthenticationV1Interface
}

func (r waiter) TokenReviews() authenticationclient.TokenReviewInterface { return r }

func (waiter) Create(ctx context.Context, _ *authenticationv1.TokenReview, _ metav1.CreateOptions) (*authenticationv1.TokenReview, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestRevokeIsBounded: it waited for each review on each kube-apiserver, for minutes, and printed nothing.
func TestRevokeIsBounded(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.Clock, w.jwks = clock.RealClock{}, new("") // their issuer is no https URL
		alive := newWorld(t)
		alive.accepts = nil
		w.Cluster.Client = away{w.kube}
		for _, host := range []string{"a", "b", "c", "d", "e"} {
			w.Cluster.Others = append(w.Cluster.Others, APIServer{URL: "https://" + host, Client: away{w.kube}})
		}
		w.Cluster.Others = append(w.Cluster.Others, APIServer{URL: "https://alive", Client: alive.kube})
		begun, said := time.Now(), 0
		w.Progress = func(string, time.Duration) { said++ }
		_, err := w.Revoke(t.Context(), RevokeOptions{IDs: []string{rsaID}})
		refusedWith(t, err, "revoked, but: the kube-apiserver of the kubeconfig: it is not known which keys it accepts")
		refusedWith(t, err, "https://e: it is not known which keys it accepts")
		testutil.Expect(t, !strings.Contains(err.Error(), "https://alive"), "one that answers is named: %v", err)
		took := time.Since(begun)
		testutil.Expect(t, took <= revokeWait+10*time.Second && said != 0, "it took %s, and has said what it waits for %d times", took,
			said)
		p := w.published()
		testutil.Expect(t, len(p.Removed) == 1 && w.state().Active().ID == p256ID, "published as revoked: %+v", p.Removed)
	})
}

// TestRevokeIncomplete: what keeps a revocation from being complete is named, each time.
func TestRevokeIncomplete(t *testing.T) {
	t.Parallel()
	claimed := func(w *world) {
		w.edit(func(p *hosts.Published) { p.Claim = hosts.Claim{Generation: 16, Host: "cp-3"} })
	}
	for name, tc := range map[string]struct {
		reason  string
		change  func(*testing.T, *world)
		options RevokeOptions
		again   bool
		want    string // in the notes or the error
		leaves  string // the active key of the file, which has the revocation then; "" if it cannot be read
	}{
		"claimed": {
			reason: "another host is making a ring, and was killed", change: func(_ *testing.T, w *world) { claimed(w) },
			options: RevokeOptions{IDs: []string{rsaID}}, want: "no key was made here", leaves: rsaID,
		},
		"claimed, run again": {
			reason: "it said nothing the second time", change: func(_ *testing.T, w *world) { claimed(w) },
			options: RevokeOptions{IDs: []string{rsaID}}, again: true, want: "host cp-3 is making generation 16", leaves: rsaID,
		},
		"published from a restored host, a day after the last rotation": {
			reason: "it was always refused, and named the next key, which is good",
			change: func(_ *testing.T, w *world) {
				w.edit(func(p *hosts.Published) {
					p.Removed = ring.Revocations{{ID: rsaID, Digest: rsaID, Reason: ring.Revoked}}
				})
				w.clock.Step(48 * time.Hour)
			},
			options: RevokeOptions{Active: true}, want: "nothing more is revoked: key " + p256ID +
				" signs because another one was revoked\n",
			leaves: p256ID,
		},
		"the Secret is full": {
			reason: "nothing was revoked, because the hosts could not be recorded",
			change: func(_ *testing.T, w *world) {
				w.kube.PrependReactor("update", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, errors.New("too long")
				})
			},
			options: RevokeOptions{Active: true}, want: "too long", leaves: rsaID,
		},
		"kube-controller-manager signs with it": {
			reason: "it follows no published ring",
			change: func(t *testing.T, w *world) {
				w.kube.PrependWatchReactor("secrets", filling(t, w.kube.Clientset, "kube-controller-manager", testkeys.RSA2048()))
			},
			options: RevokeOptions{IDs: []string{rsaID}}, leaves: p256ID,
			want: "kube-controller-manager signs the tokens of Secrets with key " + rsaID + ", which is revoked",
		},
		"an unreadable file": {
			reason: "the error said that no key signs",
			change: func(t *testing.T, w *world) {
				w.edit(func(p *hosts.Published) { p.Entries = nil })
				testutil.Must(t, os.WriteFile(w.File.Path(), []byte("{"), 0o600))
			},
			options: RevokeOptions{Active: true}, want: "is not JSON",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			tc.change(t, w)
			notes, err := w.Revoke(t.Context(), tc.options)
			if tc.again {
				notes, err = w.Revoke(t.Context(), tc.options)
			}
			if err != nil {
				notes = append(notes, err.Error())
			}
			said := strings.Join(notes, "\n")
			testutil.Expect(t, strings.Contains(said, tc.want), "%s: said %q, want %q", tc.reason, said, tc.want)
			if tc.leaves == "" {
				return
			}
			if state := w.state(); len(state.Revoked) != 1 || state.Active().ID != tc.leaves {
				t.Errorf("%s: %d keys are revoked in the file, and %s is active", tc.reason, len(state.Revoked), state.Active().ID)
			}
		})
	}
}

// TestRevokeActiveElsewhere: --active is never for a key of a file alone that this host does not sign with.
func TestRevokeActiveElsewhere(t *testing.T) {
	t.Parallel()
	foreign := func(t *testing.T, w *world) *world {
		other := newWorld(t)
		w.must(os.Remove(other.File.Path()))
		w.must(other.File.Init(testkeys.Parse(testkeys.RSA2048Other()), nil, new(ring.KeyOf(testkeys.Parse(testkeys.P384()))), epoch))
		other.show("cp-1", 0)
		return other
	}
	otherID, nextID := testkeys.Parse(testkeys.RSA2048Other()).Public().ID, testkeys.Parse(testkeys.P384()).Public().ID
	for name, tc := range map[string]struct {
		reason string
		file   func(*testing.T, *world) *world // whose ring file is put here
		here   string
	}{
		"of another cluster": {reason: "the key of the file was revoked", file: foreign, here: otherID},
		"of another cluster, where a key was revoked": {
			reason: "it ended with 0: nothing more is revoked", here: nextID,
			file: func(t *testing.T, w *world) *world {
				other := foreign(t, w)
				other.accepts, other.jwks = nil, new("")
				testutil.Get(other.Revoke(t.Context(), RevokeOptions{IDs: []string{otherID}}))(t)
				return other
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.must(copyFile(tc.file(t, w).File, w.File))
			before := w.state()
			w.accepts, w.jwks = nil, new("") // what is revoked nevertheless is not waited for
			notes, err := w.Revoke(t.Context(), RevokeOptions{Active: true})
			testutil.Require(t, err != nil, "%s: said %q", tc.reason, notes)
			refusedWith(t, err, "the file of this host has "+tc.here+" as the key that signs, and the host has published "+rsaID)
			refusedWith(t, err, "keys revoke "+rsaID)
			if p := w.published(); len(p.Removed) > 0 || w.state().Version() != before.Version() {
				t.Errorf("%s: revoked %+v, the file has version %s", tc.reason, p.Removed, w.state().Version())
			}
		})
	}
}

// TestAsk: whatever the answer is, no Secret is left, unless that is said.
func TestAsk(t *testing.T) {
	t.Parallel()
	lease := kcmLease()
	fails := func(verb string) func(*testing.T, *fake.Clientset) {
		return func(_ *testing.T, client *fake.Clientset) {
			client.PrependReactor(verb, "secrets",
				func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("no") })
		}
	}
	leaves := func(t *testing.T, client *fake.Clientset) { // a command that is killed deletes nothing
		killed := fake.NewClientset()
		killed.PrependWatchReactor("secrets", filling(t, killed, "kube-controller-manager", testkeys.P256()))
		fails("delete")(t, killed)
		_, _, _ = ask(t.Context(), killed, "kube-system", "default")
		left, err := killed.CoreV1().Secrets("kube-system").List(t.Context(), metav1.ListOptions{})
		testutil.Must(t, err)
		testutil.Must(t, client.Tracker().Add(&left.Items[0]))
	}
	beside := func(t *testing.T, client *fake.Clientset) {
		testutil.Must(t, client.Tracker().Add(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: "kube-system", Name: probe, CreationTimestamp: metav1.Now(),
		}}))
	}
	for name, tc := range map[string]struct {
		by     string // the field manager that fills it, "" for none
		lease  *coordinationv1.Lease
		change func(*testing.T, *fake.Clientset)
		want   string
		err    string
	}{
		"Leading": {by: "kube-controller-manager", lease: lease, want: "kube-controller-manager on host cp-2"},
		"NoLease": {by: "kube-controller-manager", want: "kube-controller-manager"},
		"Nobody":  {},
		"Ended":   {by: apiServerRestarts, err: "kube-apiserver has ended the watch: run this again"},
		"Refused": {change: fails("create"), err: "see with which key the token controller signs: create a token Secret, which"},
		"Left":    {by: "k3s", change: fails("delete"), want: "k3s", err: "whose token is valid while it exists: no"},
		"Killed":  {by: "kube-controller-manager", change: leaves, want: "kube-controller-manager"},
		"Beside":  {change: beside, err: "which another command may have there for 20s: secrets \"" + probe + "\" already exists"},
		"Two":     {by: anotherCommand, err: "another command asks, too, and has deleted our Secret: run this again"},
	} {
		testutil.Bubble(t, name, func(t *testing.T) {
			client := fake.NewClientset()
			if tc.lease != nil {
				client = fake.NewClientset(tc.lease)
			}
			client.PrependWatchReactor("secrets", filling(t, client, tc.by, testkeys.P256()))
			if tc.change != nil {
				tc.change(t, client)
			}
			keyID, signer, err := ask(t.Context(), client, "kube-system", "default")
			if signer != tc.want || (keyID == "") != (tc.want == "") || (err == nil) != (tc.err == "") ||
				err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("key %q of %q, %v; want %q, %q", keyID, signer, err, tc.want, tc.err)
			}
			secrets, err := client.CoreV1().Secrets("kube-system").List(t.Context(), metav1.ListOptions{})
			testutil.Must(t, err)
			left := len(secrets.Items) > 0
			testutil.Expect(t, left == (strings.Contains(tc.err, "while it exists") || name == "Beside"), "a Secret is left: %t", left)
		})
	}
}

// kcmLease is that of the kube-controller-manager that leads.
func kcmLease() *coordinationv1.Lease {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-controller-manager"}}
	lease.Spec.HolderIdentity = new("cp-2_b2b6")
	return lease
}

// anotherCommand, in place of a token controller, deletes the Secret.
const anotherCommand = "another command"

// apiServerRestarts, in place of a token controller, ends the watch.
const apiServerRestarts = "kube-apiserver"

// filling has a token controller fill the Secret that is watched. Without one the watch ends after fillTimeout.
func filling(t *testing.T, client *fake.Clientset, by string, key []byte) clienttesting.WatchReactionFunc {
	return func(action clienttesting.Action) (bool, watch.Interface, error) {
		if by == apiServerRestarts {
			return true, watch.NewEmptyWatch(), nil
		}
		if by == "" {
			silent := watch.NewFake()
			time.AfterFunc(fillTimeout+time.Second, silent.Stop)
			return true, silent, nil
		}
		resource, namespace := action.GetResource(), action.GetNamespace()
		watching := testutil.Get(client.Tracker().Watch(resource, namespace))(t)
		name, _ := action.(clienttesting.WatchAction).GetWatchRestrictions().Fields.RequiresExactMatch("metadata.name")
		object := testutil.Get(client.Tracker().Get(resource, namespace, name))(t)
		if by == anotherCommand {
			testutil.Must(t, client.Tracker().Delete(resource, namespace, name))
			return true, watching, nil
		}
		secret := object.(*corev1.Secret).DeepCopy()
		secret.Data = map[string][]byte{
			corev1.ServiceAccountTokenKey: []byte(controllertest.Token(t, key, controllertest.UID, "mine")),
		}
		testutil.Must(t, client.Tracker().Update(resource, secret, namespace, metav1.UpdateOptions{FieldManager: by}))
		return true, watching, nil
	}
}

// TestNobodyAnswers: that no token controller fills the Secret says nothing about one that is known.
func TestNobodyAnswers(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		objects []runtime.Object
		want    string
	}{
		"NeverThere": {},
		"Down":       {[]runtime.Object{kcmLease()}, "and kube-controller-manager may sign the tokens of Secrets with a key of its own"},
	} {
		testutil.Bubble(t, name, func(t *testing.T) {
			client := fake.NewClientset(tc.objects...)
			client.PrependWatchReactor("secrets", filling(t, client, "", nil))
			o := &Operator{
				File: ring.At(t.TempDir() + "/ring.json"), Progress: func(string, time.Duration) {},
				Cluster: &Cluster{Client: client, Namespace: "kube-system", Account: "default"},
			}
			signers, err := o.fills(t.Context())
			testutil.Expect(t, len(signers) == 0 && (err == nil) == (tc.want == "") &&
				(err == nil || strings.Contains(err.Error(), tc.want)),
				"%v, %v; want %q", signers, err, tc.want)
		})
	}
}

// TestSignsRevoked: only a revoked key that kube-controller-manager signs with is an error, and without a revoked key no Secret
// is made.
func TestSignsRevoked(t *testing.T) {
	t.Parallel()
	signs := ring.KeyOf(testkeys.Parse(testkeys.P256())).ID
	for name, tc := range map[string]struct {
		by, revoked, want string
		asked             bool
	}{
		"NoneRevoked": {by: "kube-controller-manager"},
		"Another":     {by: "kube-controller-manager", revoked: "another", asked: true},
		"KCM": {
			by: "kube-controller-manager", revoked: signs, asked: true, want: "kube-controller-manager signs the tokens of Secrets with",
		},
		"Ours": {by: "sa-controller-manager", revoked: signs, asked: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, asked := fake.NewClientset(), false
			client.PrependWatchReactor("secrets", filling(t, client, tc.by, testkeys.P256()))
			testutil.Must(t, hosts.Edit(t.Context(), client, func(p *hosts.Published) error {
				if tc.revoked != "" {
					p.Removed = ring.Revocations{{ID: tc.revoked, Digest: tc.revoked, Reason: ring.Revoked}}
				}
				return nil
			}))
			client.PrependReactor("create", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
				asked = true
				return false, nil, nil
			})
			err := (&Operator{
				File: ring.At(t.TempDir() + "/ring.json"), Progress: func(string, time.Duration) {},
				Cluster: &Cluster{Client: client, Namespace: "kube-system", Account: "default"},
			}).SignsRevoked(t.Context())
			testutil.Expect(t, asked == tc.asked && (err == nil) == (tc.want == "") &&
				(err == nil || strings.HasPrefix(err.Error(), tc.want)),
				"asked: %t, %v; want %t, %q", asked, err, tc.asked, tc.want)
		})
	}
}
