// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clocktesting "k8s.io/utils/clock/testing"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
	"sa-controller-manager/controllers/keyring/hosts"
	"sa-controller-manager/controllers/keyring/remote"
	"sa-controller-manager/controllers/keyring/ring"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing/signertest"
	"sa-controller-manager/signing/testkeys"
)

// serve runs a kube-apiserver and our process on each host; the Service kubernetes has these addresses.
func (w *world) serve(hosts []string, addresses ...string) {
	w.t.Helper()
	for _, host := range hosts {
		w.show(host, time.Hour)
	}
	_ = w.kube.DiscoveryV1().EndpointSlices("default").Delete(w.t.Context(), "kubernetes", metav1.DeleteOptions{})
	for _, object := range clitest.ControlPlane(hosts, addresses...) {
		if lease, ok := object.(*coordinationv1.Lease); ok {
			lease.Spec.RenewTime = new(metav1.NowMicro())
		}
		w.must(w.kube.Tracker().Add(object))
	}
}

// passing is a clock that goes on by what is waited for, after a call of meanwhile.
type passing struct {
	*clocktesting.FakeClock

	meanwhile func()
}

func (c passing) After(d time.Duration) <-chan time.Time {
	after := c.FakeClock.After(d)
	c.meanwhile()
	c.Step(d)
	return after
}

// renew renews the identity Lease of a kube-apiserver.
func (w *world) renew(host string) {
	w.t.Helper()
	leases := w.kube.CoordinationV1().Leases("kube-system")
	lease := testutil.Get(leases.Get(w.t.Context(), "apiserver-"+host, metav1.GetOptions{}))(w.t)
	lease.Spec.RenewTime = &metav1.MicroTime{Time: lease.Spec.RenewTime.Add(10 * time.Second)}
	testutil.Get(leases.Update(w.t.Context(), lease, metav1.UpdateOptions{}))(w.t)
}

// TestForgottenAPIServer: kube-apiservers without a flag are found, and one that cannot be asked
// blocks the step, by the name of its host.
func TestForgottenAPIServer(t *testing.T) {
	t.Parallel()
	hosts := []string{"cp-1", "cp-2"}
	t.Run("Found", func(t *testing.T) {
		t.Parallel()
		w, other := newWorld(t), newWorld(t)
		other.accepts = []string{rsaID}
		w.serve(hosts, "10.0.0.1", "10.0.0.2")
		w.Cluster.Dial = func(url string) (kubernetes.Interface, error) {
			if url == "https://10.0.0.2:6443" {
				return other.kube, nil
			}
			return w.kube, nil
		}
		refusedWith(t, w.Rotate(t.Context(), RotateOptions{Force: true}),
			"cannot sign yet: https://10.0.0.2:6443: kube-apiserver refuses its tokens")
		other.accepts = append(other.accepts, p256ID)
		joined := newWorld(t)
		w.serve([]string{"cp-3"}, "10.0.0.1", "10.0.0.2", "10.0.0.3")
		w.Cluster.Dial = func(string) (kubernetes.Interface, error) { return joined.kube, nil }
		joined.accepts = []string{rsaID}
		refusedWith(t, w.Rotate(t.Context(), RotateOptions{Force: true}),
			"cannot sign yet: https://10.0.0.3:6443: kube-apiserver refuses its tokens")
		joined.accepts = append(joined.accepts, p256ID)
		w.must(w.Rotate(t.Context(), RotateOptions{Force: true}))
	})
	t.Run("NotFound", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.serve(hosts, "10.0.0.1")
		w.Cluster.Dial = func(string) (kubernetes.Interface, error) { return w.kube, nil }
		const want = "kube-apiserver runs on 2 hosts, and only 1 can be asked: not on 1 of cp-1, cp-2: name each of them with --apiserver"
		refusedWith(t, w.Rotate(t.Context(), RotateOptions{Force: true}), want)
		w.Clock = passing{w.clock, func() { w.renew("cp-2") }}
		lives := "kube-apiserver lives on host cp-2: leave out --without-host=cp-2"
		refusedWith(t, w.Rotate(t.Context(), RotateOptions{Force: true, Without: []string{"cp-2"}}), lives)
		refusedWith(t, w.Rollback(t.Context(), []string{"cp-2"}), "no rotation to roll back")
		_, err := w.Prune(t.Context(), "cp-2")
		w.must(err) // nothing is retired
		w.Clock = passing{w.clock, func() {}}
		w.must(w.Rotate(t.Context(), RotateOptions{Force: true, Without: []string{"cp-2"}}))
		w.Clock = passing{w.clock, func() { w.renew("cp-2") }}
		testutil.Check(t, "hosts that need not be looked at again", []string{"cp-2"}, w.left)
		w.left = nil // another command
		refusedWith(t, w.Rollback(t.Context(), []string{"cp-2"}), lives)
		refusedWith(t, w.Next(t.Context(), Successor{Algorithm: "P-521"}, "cp-2"), lives) // it would fork the ring
		_, err = w.Prune(t.Context(), "cp-2")
		refusedWith(t, err, lives)
		for i, command := range []func(without ...string) error{
			func(without ...string) error { _, err := w.Prune(t.Context(), without...); return err },
			func(without ...string) error {
				_, err := w.Revoke(t.Context(), RevokeOptions{IDs: []string{rsaID}, Without: without})
				return err
			},
		} {
			w.Cluster.Others, w.Cluster.dialled = nil, false // each is a process of its own
			refusedWith(t, command(), want)
			w.Clock = passing{w.clock, func() {}}
			err := command("cp-2")
			testutil.Expect(t, err == nil, "command %d without the host that is gone: %v", i, err)
		}
		w.Clock = passing{w.clock, func() { w.renew("cp-1") }}
		_, err = w.Revoke(t.Context(), RevokeOptions{IDs: []string{rsaID}, Without: []string{"cp-1"}})
		refusedWith(t, err, "revoked, but: kube-apiserver lives on host cp-1: leave out --without-host=cp-1")
	})
}

// TestNamedAPIServers: one kube-apiserver does not stand for another one, whether it is named twice, given with --kubeconfig
// too, or of a host that is left out.
func TestNamedAPIServers(t *testing.T) {
	t.Parallel()
	hosts := []string{"cp-1", "cp-2", "cp-3"}
	for name, tc := range map[string]struct {
		urls, without []string
		own           map[string]string // the addresses that they give themselves
		nodes         bool
		want          string
	}{
		"each":                    {urls: []string{"https://a", "https://b", "https://c"}},
		"that of --kubeconfig is": {urls: []string{"https://a", "https://b"}, want: "only 2 can be asked: not on 1 of cp-1, cp-2, cp-3"},
		"one twice":               {urls: []string{"https://a", "https://b", "https://b/"}, want: "only 2 can be asked"},
		"one by two names": {
			urls: []string{"https://a", "https://b", "https://c"},
			own:  map[string]string{"https://a": "10.0.0.2:6443", "https://b": "10.0.0.2:6443"}, want: "only 2 can be asked",
		},
		"one by a balancer, too": {
			urls: []string{"https://10.0.0.1", "https://a", "https://b"}, own: map[string]string{"https://b": "10.0.0.1:6443"}, nodes: true,
			want: "only 2 can be asked: not on 1 of cp-2, cp-3",
		},
		"each by one name": {
			urls: []string{"https://a", "https://b", "https://c"},
			own:  map[string]string{"https://a": "api:6443", "https://b": "api:6443", "https://c": "api:6443"},
		},
		"one is gone": {urls: []string{"https://a", "https://b"}, without: []string{"cp-3"}},
		"another one is": {
			urls: []string{"https://10.0.0.1:1", "https://cp-3"}, without: []string{"cp-3"}, nodes: true, want: "not on cp-2",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if tc.nodes {
				node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "cp-1"},
					Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Address: "10.0.0.1"}}}}
				_, err := w.kube.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
				w.must(err)
			}
			for _, url := range tc.urls {
				own := clitest.NewKubeClient(func(path string) string {
					testutil.Check(t, "asked for", "/api", path)
					return fmt.Sprintf(`{"serverAddressByClientCIDRs":[{"serverAddress":%q}]}`, tc.own[url])
				})
				w.Cluster.Others = append(w.Cluster.Others, APIServer{URL: url, Client: own})
			}
			if err := w.Cluster.Find(t.Context(), hosts, tc.without...); tc.want == "" {
				w.must(err)
			} else {
				refusedWith(t, err, tc.want)
			}
		})
	}
}

// TestUnreadableEntry: what another release has written of one host keeps no revocation from the others, and its host is named.
func TestUnreadableEntry(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	secrets := w.kube.CoreV1().Secrets("kube-system")
	secret := testutil.Get(secrets.Get(t.Context(), hosts.SecretName, metav1.GetOptions{}))(t)
	secret.Data["host.cp-2"] = []byte("x")
	testutil.Get(secrets.Update(t.Context(), secret, metav1.UpdateOptions{}))(t)
	const want = "the published key rings cannot be read: another release wrote that of host cp-2"
	refusedWith(t, w.Rotate(t.Context(), RotateOptions{Force: true}), want)
	_, err := w.Revoke(t.Context(), RevokeOptions{Active: true})
	refusedWith(t, err, "revoked, but: "+want)
	testutil.Expect(t, w.state().Active().ID == p256ID && len(w.published().Removed) == 1, "the key is not revoked")
	w.must(w.Forget(t.Context(), "cp-2"))
	testutil.Get(w.Revoke(t.Context(), RevokeOptions{IDs: []string{rsaID}}))(t)
}

// TestHostThatIsAway: a kube-apiserver that was once seen counts although its identity Lease has expired: it comes back with
// the keys that it had. It is named by its Node's address.
func TestHostThatIsAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.serve([]string{"cp-1", "cp-2"}, "10.0.0.1")
	w.Cluster.Dial = func(string) (kubernetes.Interface, error) { return w.kube, nil }
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "cp-1"},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Address: "10.0.0.1"}}}}
	testutil.Get(w.kube.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}))(t)
	const want = "kube-apiserver runs on 2 hosts, and only 1 can be asked: not on cp-2: "
	refusedWith(t, w.Rotate(t.Context(), RotateOptions{Force: true}), want)
	w.must(w.kube.CoordinationV1().Leases("kube-system").Delete(t.Context(), "apiserver-cp-2", metav1.DeleteOptions{}))
	refusedWith(t, w.Rotate(t.Context(), RotateOptions{Force: true}), want)
	_, err := w.Revoke(t.Context(), RevokeOptions{Active: true})
	refusedWith(t, err, "revoked, but: "+want)
	testutil.Expect(t, w.state().Active().ID == p256ID && len(w.published().Removed) == 1, "the key is not revoked")
	// The same command again revokes nothing more: not the fresh key.
	notes, err := w.Revoke(t.Context(), RevokeOptions{Active: true})
	refusedWith(t, err, want)
	if p := w.published(); len(p.Removed) != 1 || !strings.HasPrefix(notes[0], "nothing more is revoked: key "+p256ID) {
		t.Errorf("a second time: revoked %+v, %q", p.Removed, notes)
	}
	w.must(w.Forget(t.Context(), "cp-2"))
	testutil.Get(w.Revoke(t.Context(), RevokeOptions{Active: true}))(t)
	begun := w.Clock
	w.Clock = passing{clocktesting.NewFakeClock(epoch.Add(25 * time.Hour)), func() {}}
	_, err = w.Revoke(t.Context(), RevokeOptions{Active: true}) // another leak, later
	refusedWith(t, err, "revoked, but: key "+p256ID+" signs since another one was revoked, more than a day ago")
	w.Clock = begun
	w.serve([]string{"cp-3"}, "10.0.0.1", "10.0.0.3")
	w.edit(func(p *hosts.Published) { p.Entries = p.Entries[:1] })
	_, err = w.Revoke(t.Context(), RevokeOptions{Active: true})
	refusedWith(t, err, "kube-apiserver runs on host cp-3, which publishes no key ring")
	w.Clock = passing{clocktesting.NewFakeClock(epoch.Add(25 * time.Hour)), func() {}}
	_, err = w.Revoke(t.Context(), RevokeOptions{Active: true}) // the host that was away is asked all the same
	refusedWith(t, err, "more than a day ago")
	refusedWith(t, err, "kube-apiserver runs on host cp-3, which publishes no key ring")
	w.Clock = passing{w.clock, func() {}}
	testutil.Get(w.Revoke(t.Context(), RevokeOptions{Active: true, Without: []string{"cp-3"}}))(t)
}

// TestRevokeOnALateHost: the file says that another key is active than the one that signs. The page's own block revoked that
// one, and forked the ring.
func TestRevokeOnALateHost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.show("cp-1", time.Hour)
	late := *w.Operator
	late.File, late.Host = ring.At(filepath.Join(t.TempDir(), "ring.json")), "cp-2"
	err := copyFile(w.File, late.File)
	w.must(err)
	w.must(w.Rotate(t.Context(), RotateOptions{Force: true}))
	w.show("cp-1", time.Hour)
	before := testutil.Get(late.File.Read())(t)
	notes := testutil.Get(late.Revoke(t.Context(), RevokeOptions{Active: true}))(t)
	after := testutil.Get(late.File.Read())(t)
	if !after.Revoked.Has(testkeys.Parse(testkeys.P256()).Public()) || after.Version() != before.Version() ||
		!strings.Contains(strings.Join(notes, "\n"), "no key was made here, because this is not the newest ring") {
		t.Errorf("revoked %+v, generation %d after %d, notes %q", after.Revoked, after.Generation, before.Generation, notes)
	}
	ring := after.Ring()
	testutil.Expect(t, ring.ActiveID() == rsaID, "%s signs here", ring.ActiveID())
	testutil.Get(w.Revoke(t.Context(), RevokeOptions{Active: true}))(t)
	if state := w.state(); len(state.Revoked) != 1 || state.Active().Kind() != "P-256" || state.Active().ID == p256ID {
		t.Errorf("where the newest ring is: %s signs, revoked %+v", state.Active().ID, state.Revoked)
	}
}

// TestRevokeWithoutAFile: a file that cannot be written keeps the revocation from nobody.
func TestRevokeWithoutAFile(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*world){
		"a link, as in a mounted Secret": func(w *world) {
			w.must(os.Rename(w.File.Path(), w.File.Path()+".real"))
			w.must(os.Symlink(w.File.Path()+".real", w.File.Path()))
		},
		"no place for another file": func(w *world) { w.must(os.MkdirAll(w.File.Path()+".previous/x", 0o700)) },
		"it cannot be read":         func(w *world) { w.must(os.WriteFile(w.File.Path(), []byte("{"), 0o600)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			spoil(w)
			_, err := w.Revoke(t.Context(), RevokeOptions{IDs: []string{rsaID}})
			refusedWith(t, err, "revoked, but: the ring file of this host is as it was: ")
			p := w.published()
			testutil.Expect(t, len(p.Removed) == 1 && p.Removed[0].ID == rsaID, "published as revoked: %+v", p.Removed)
		})
	}
}

const hsmID = "hsm/1:sa"

// withSigner gives the world a foreign signer kep740:hsm.
func (w *world) withSigner(pem []byte) *signertest.Foreign {
	w.t.Helper()
	path := filepath.Join(w.t.TempDir(), "hsm.sock")
	foreign := signertest.ServeForeign(w.t, path, hsmID, pem)
	w.Signers = remote.NewClient(func() remote.Sockets { return remote.Sockets{"hsm": path} }, nil)
	w.t.Cleanup(w.Signers.Close)
	w.File = w.File.Signing(w.Signers.Sign)
	return foreign
}

// TestRotateToASigner goes from a file to a signer with a key ID of its own, and back.
func TestRotateToASigner(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	foreign := w.withSigner(testkeys.P256Other())
	w.edit(func(p *hosts.Published) { p.Entries[0].Signer = false })
	refusedWith(t, w.Next(t.Context(), Successor{Signer: "kep740:hsm"}), "kube-apiserver on host cp-1 has key files")
	w.show("cp-1", 0)
	w.must(w.Next(t.Context(), Successor{Signer: "kep740:hsm"}))
	w.accepts = append(w.accepts, hsmID)
	w.show("cp-1", time.Hour)
	refusedWith(t, w.Rotate(t.Context(), RotateOptions{}),
		"key "+hsmID+" is in another process (kep740:hsm), and so must be the one after it")
	w.must(w.Rotate(t.Context(), RotateOptions{Next: Successor{None: true}}))
	active := w.state().Active()
	testutil.Expect(t, active.ID == hsmID && active.Signer == "kep740:hsm" && !active.PublicOnly && active.Foreign(),
		"the active key is %+v",
		active)
	data := testutil.Get(os.ReadFile(w.File.Path()))(t)
	if bytes.Count(data, []byte("PRIVATE KEY")) != 2 || bytes.Contains(data, []byte(".sock")) {
		t.Error("the ring has more than the public half and the name of the signer") // begin and end of one PEM
	}
	w.show("cp-1", 0)
	refusedWith(t, w.Next(t.Context(), Successor{}), "is in another process (kep740:hsm)")
	refusedWith(t, w.Next(t.Context(), Successor{Signer: "kep740:hsm"}), "is in the ring already, as active")
	refusedWith(t, w.Rotate(t.Context(), RotateOptions{}), "the ring has no next key")
	foreign.Stop() // the way back needs no signer
	w.must(w.Rollback(t.Context(), nil))
	state := w.state()
	testutil.Expect(t, state.Active().ID == rsaID, "%s signs", state.Active().ID)
	w.show("cp-1", 0)
	w.must(w.Next(t.Context(), Successor{Algorithm: "P-521"}))
	notes, err := w.Revoke(t.Context(), RevokeOptions{IDs: []string{hsmID}})
	if err != nil || !strings.Contains(strings.Join(notes, "\n"),
		"kep740:hsm has the private half of key "+hsmID+" still: destroy it there") {
		t.Errorf("revoke: %v, %v", notes, err)
	}
}

// TestRotateRefusesBeforeItWaits: a key that was next once cannot come after the next one, whatever is waited for.
func TestRotateRefusesBeforeItWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.withSigner(testkeys.P256Other())
	w.show("cp-1", 0)
	w.must(w.Next(t.Context(), Successor{Signer: "kep740:hsm"}))
	w.show("cp-1", 0)
	w.must(w.Next(t.Context(), Successor{Algorithm: "P-384"}))
	w.Progress = func(what string, _ time.Duration) { t.Errorf("it waits: %s", what) }
	refusedWith(t, w.Rotate(t.Context(), RotateOptions{Next: Successor{Signer: "kep740:hsm"}, Wait: true}), "was withdrawn before")
}

func TestPinRefuses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		does      func(*signertest.Behaviour)
		boundOnly bool
		want      string
	}{
		"good": {does: func(*signertest.Behaviour) {}},
		"no legacy tokens": {
			does: func(b *signertest.Behaviour) { b.NoLegacy = true },
			want: "refuses the tokens of Secrets, which the token controller signs",
		},
		"bound tokens only": {does: func(b *signertest.Behaviour) { b.NoLegacy = true }, boundOnly: true},
		"short maximum": {
			does: func(b *signertest.Behaviour) { b.MaxSeconds = 3600 },
			want: "signs tokens for at most 1h0m0s, and kube-apiserver asks for up to 48h0m0s",
		},
		"lists another key": {does: func(b *signertest.Behaviour) { b.Listed[0].KeyId = "other" }, want: "which is not pinned"},
		"signs with another": {
			does: func(b *signertest.Behaviour) { b.PEM = testkeys.P256Other() }, want: "does not verify with the pinned public half",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.withSigner(testkeys.P256()).Set(tc.does)
			_, err := w.Pin(t.Context(), "kep740:hsm", tc.boundOnly)
			testutil.CheckError(t, "error", tc.want, err)
		})
	}
}
