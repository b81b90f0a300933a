// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"errors"
	"io/fs"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
	"sa-controller-manager/controllers/controllertest"
	"sa-controller-manager/controllers/keyring/ring"
	"sa-controller-manager/internal/check"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// ringReplica is a process with a ring, on a host.
type ringReplica struct {
	*Controller
	*controllertest.World

	state    atomic.Pointer[ring.State]
	disk     atomic.Pointer[ring.State] // what the file has, if that is something else
	desired  atomic.Pointer[ring.Desired]
	keySet   atomic.Pointer[[]signing.PublicKey] // of kube-apiserver
	stop     func()
	compared atomic.Int64 // how often Compared was notified
}

// keySets is a kube-apiserver that publishes keys, too.
type keySets struct {
	*fake.Clientset

	discovery discovery.DiscoveryInterfaces
}

func (k keySets) Discovery() discovery.DiscoveryInterfaces { return k.discovery }

func newAPI(objects ...runtime.Object) *fake.Clientset {
	w := controllertest.NewWorld(time.Time{}, objects...)
	w.NumberVersions("secrets")
	return w.Client
}

func startReplica(t *testing.T, client *fake.Clientset, host string, state ring.State, change ...func(*Config)) *ringReplica {
	t.Helper()
	w := controllertest.NewWorld(time.Time{})
	r := &ringReplica{World: w}
	r.state.Store(&state)
	r.desired.Store(&ring.Desired{})
	r.keySet.Store(&[]signing.PublicKey{a().Public()})
	config := Config{
		Client: keySets{client, clitest.NewKubeClient(func(string) string {
			document := testutil.Get(signing.MarshalJWKS(*r.keySet.Load()))(t)
			return string(document)
		}).Discovery()}, State: func() ring.State { return *r.state.Load() }, Host: host, Writer: host,
		Read: func() (ring.State, error) {
			switch disk := r.disk.Load(); {
			case disk == nil:
				return *r.state.Load(), nil
			case disk.Generation == 0:
				return ring.State{}, fs.ErrNotExist
			default:
				return *disk, nil
			}
		},
		SignsWith: func() string { return r.state.Load().Apply(*r.desired.Load()).ActiveID() },
		Away: func(key ring.Key) (string, time.Duration) {
			if key.Private == nil {
				return "its public half is here alone", 0
			}
			return "", 0
		},
		Apply:    func(desired ring.Desired) { r.desired.Store(&desired) },
		Recorder: w.Recorder(),
		Process:  &corev1.ObjectReference{Kind: "Lease", Name: "process"}, Metrics: NewMetrics(w.Registry.MustRegister),
	}
	for _, change := range change {
		change(&config)
	}
	c := New(config)
	// The fake API server loses what changes between a list and its watch.
	c.Compared.Subscribe(func(*Standing) { time.Sleep(time.Millisecond); r.compared.Add(1) })
	testutil.Expect(t, c.MayFill() != nil && c.MayReissue() != nil && c.MaySign() == nil,
		"before the first comparison nothing is to be filled, and signing goes on")
	r.Controller, r.stop = c, testutil.Start(t, c.Run)
	time.Sleep(time.Second) // for writes that are refused once
	synctest.Wait()
	return r
}

func (r *ringReplica) set(state ring.State) {
	r.state.Store(&state)
	r.RingChanged()
	testutil.Pause(time.Second / 10)
}

// check wants readiness to fail for a file that is not the one that the host has used, and where nothing is signed.
func (r *ringReplica) check(t *testing.T, when, status string, mismatch map[string]float64, told ...string) {
	t.Helper()
	synctest.Wait()
	got, err := checked(r.Findings())
	fails := mismatch[check.RingRestored]+mismatch[check.RingLost]+mismatch[check.RingDropped]+mismatch[check.RingRevoked] > 0
	if fails != (err != nil) {
		t.Errorf("%s: the check answers %v, fails: want %t", when, err, fails)
	} else if fails {
		got = err.Error()
	}
	testutil.Expect(t, strings.Contains(got, status), "%s: the status is %q, want %q", when, got, status)
	series := r.World.Series(t, "sacm_key_ring_mismatch")
	maps.DeleteFunc(series, func(_ string, value float64) bool { return value == 0 })
	testutil.Check(t, when+": mismatch", mismatch, series)
	testutil.Check(t, when+": events", told, r.World.Events())
}

func read(t *testing.T, client *fake.Clientset) Published {
	t.Helper()
	return testutil.Get(Fetch(t.Context(), client))(t)
}

func secret() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: SecretName}}
}

// TestLateHost: a host without the copy signs with its own next key once that is active elsewhere, says so, and applies a
// revocation.
func TestLateHost(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		client := newAPI(secret())
		before := stateOf("main", 3, b().As(signing.Active), a().As(signing.Next))
		after := stateOf("main", 4, retired(b()), a().As(signing.Active), c().As(signing.Next))
		first, second := startReplica(t, client, "cp-1", before), startReplica(t, client, "cp-2", before)
		first.check(t, "at the start", "is the one that is published", map[string]float64{})
		if entries := read(t, client).Entries; len(entries) != 2 || entries[0].Host != "cp-1" || len(entries[1].Signs) != 2 ||
			!entries[1].ShowsNext {
			t.Errorf("published: %+v", entries)
		}
		compared := second.compared.Load()
		first.set(after)
		testutil.Expect(t, second.compared.Load() != compared, "re-issue is not told of another published ring")
		if signs := second.SignsWith(); signs != a().ID() || second.MayFill() != nil || second.MayReissue() != nil ||
			second.MaySign() != nil {
			t.Errorf("a late host signs with %s, want its next key, and fills and re-issues", signs)
		}
		second.check(t, "late", "is older than that of host cp-1 (generation 4", map[string]float64{"ring-late": 1},
			"Warning KeyRingMismatch")
		second.RingChanged()
		time.Sleep(2 * time.Second)
		if entries := read(t, client).Entries; entries[1].SignsWith != a().ID() || entries[1].key(signing.Active) != b().ID() {
			t.Errorf("published: %+v, want what it has and what it signs with", entries[1])
		}

		gone := stateOf("main", 5, a().As(signing.Active), c().As(signing.Next))
		gone.Revoked = revoked(b())
		first.set(gone)
		if desired := second.desired.Load(); len(desired.Revoked) != 1 || desired.Revoked[0].ID != b().ID() {
			t.Errorf("without a copy it applies %+v, want the revocation", desired)
		}
		first.stop()
		time.Sleep(25 * time.Hour)
		p := read(t, client)
		testutil.Expect(t, len(p.Entries) == 2, "after a day: %+v, want both hosts", p.Entries)
		testutil.Must(t, client.CoreV1().Secrets("kube-system").Delete(t.Context(), SecretName, metav1.DeleteOptions{}))
		time.Sleep(time.Hour)
		if p := read(t, client); len(p.Entries) != 1 || len(p.Removed) != 1 || len(second.desired.Load().Revoked) != 1 {
			t.Errorf("after the Secret was deleted: %+v, want the revocation", p)
		}

		third := startReplica(t, client, "cp-3",
			stateOf("main", 6, a().As(signing.Active), testkeys.Parse(testkeys.P521()).As(signing.Next)))
		older := startReplica(t, client, "cp-4", stateOf("main", 1, testkeys.Parse(testkeys.RSA2048()).As(signing.Active)))
		older.check(t, "an old copy", "does not have it", map[string]float64{"ring-late": 1, "ring-lacks-active-key": 1,
			"ring-signs-dropped-key": 1},
			"Warning KeyRingMismatch")
		for _, replica := range []*ringReplica{second, third, older} {
			replica.stop()
		}
	})
}

// TestNewNextKey: how long the next key is published is renewed early, so that a short --cache-age does not wait for a
// minute.
func TestNewNextKey(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		client := newAPI(secret())
		host := startReplica(t, client, "cp-1", stateOf("main", 3, b().As(signing.Active), a().As(signing.Next)))
		for at := range 40 {
			time.Sleep(time.Second)
			got := read(t, client).Entries[0].NextSeconds
			testutil.Expect(t, got >= int64(at/2), "after %d s it is published for %d s", at+1, got)
		}
		host.stop()
	})
}

// TestRestored: an older file than the one that the host has used. All checks were green, before and after the restart.
func TestRestored(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		client := newAPI(secret())
		older := stateOf("main", 1, b().As(signing.Active), a().As(signing.Next))
		newer := stateOf("main", 3, retired(a()), c().As(signing.Active))
		host := startReplica(t, client, "cp-1", newer)
		host.disk.Store(&older)
		host.RingChanged()
		time.Sleep(time.Second)
		host.check(t, "an old copy is put back", "is not the one that it has used (generation 3)", map[string]float64{"ring-restored": 1},
			"Warning KeyRingMismatch")
		if entry := read(t, client).Entries[0]; entry.Generation != 3 || entry.File != "1:main" {
			t.Errorf("published: %+v, want what the host has used, and what is in the file", entry)
		}
		host.disk.Store(&ring.State{})
		host.RingChanged()
		time.Sleep(time.Second)
		host.check(t, "the file is lost", "its file cannot be read", map[string]float64{"ring-lost": 1}, "Warning KeyRingMismatch")
		testutil.Must(t, host.MaySign()) // it has the keys in memory
		// Its entry had no ring then, and no command could read what is published.
		testutil.Must(t, Forget(t.Context(), client, "cp-1"))
		time.Sleep(2 * renewal)
		host.check(t, "the host is forgotten, and lives", "its file cannot be read", map[string]float64{"ring-lost": 1})
		entry := read(t, client).Entries[0]
		testutil.Expect(t, entry.Generation == 3 && entry.File == "none", "published: %+v, want what the process has in memory", entry)
		host.disk.Store(&older)
		testutil.Must(t, client.CoreV1().Secrets("kube-system").Delete(t.Context(), SecretName, metav1.DeleteOptions{}))
		time.Sleep(2 * renewal)
		if entry := read(t, client).Entries[0]; entry.Generation != 3 || entry.File != "1:main" {
			t.Errorf("published: %+v, want what the process has in memory", entry)
		}
		host.stop()

		again := startReplica(t, client, "cp-1", older)
		again.check(t, "after a restart", "does not have it: nothing is signed", map[string]float64{"ring-restored": 1,
			"ring-signs-dropped-key": 1},
			"Warning KeyRingMismatch")
		testutil.Expect(t, again.MaySign() != nil && again.MayReissue() != nil && read(t, client).Entries[0].Generation == 3,
			"the older ring is used, or has replaced the newer one")
		accepted := stateOf("main", 4, b().As(signing.Active), a().As(signing.Next))
		again.set(accepted)
		time.Sleep(time.Second)
		again.check(t, "accepted", "is the one that is published", map[string]float64{})
		if entry := read(t, client).Entries[0]; entry.Generation != 4 || entry.File != "" || again.MaySign() != nil {
			t.Errorf("published: %+v, want the ring that was accepted", entry)
		}
		again.stop()
	})
}

// TestRevokedKeyAccepted: kube-apiserver of a host that was away has a revoked key in its key file.
func TestRevokedKeyAccepted(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		state := stateOf("main", 3, a().As(signing.Active), c().As(signing.Next))
		state.Revoked = revoked(b())
		host := startReplica(t, newAPI(secret()), "cp-1", state)
		host.check(t, "refused", "is the one that is published", map[string]float64{})
		host.keySet.Store(&[]signing.PublicKey{a().Public(), b().Public()})
		time.Sleep(2 * renewal)
		host.check(t, "accepted", "is the one that is published", map[string]float64{"revoked-key-accepted": 1})
		host.stop()
	})
}

// TestUnpublished: a ring that cannot be published is not said to be.
func TestUnpublished(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		client := newAPI(secret())
		client.PrependReactor("update", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(corev1.Resource("secrets"), SecretName, nil)
		})
		r := startReplica(t, client, "cp-1", stateOf("main", 3, b().As(signing.Active), a().As(signing.Next)))
		time.Sleep(time.Minute)
		r.check(t, "forbidden", "is not published", map[string]float64{"ring-unpublished": 1}, "Warning KeyRingMismatch")
		testutil.Expect(t, r.MayReissue() != nil && r.MayFill() == nil, "Secrets are to be filled, and none to be re-issued")
		r.stop()
	})
}

// TestRollout: the entry is of the node. Another Pod there takes it over once its process is gone, with the time for which
// the next key is shown, and adds no host. The process with the socket of the external signer takes it at once.
func TestRollout(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		client := newAPI(secret())
		state := stateOf("main", 3, b().As(signing.Active), a().As(signing.Next))
		pod := func(name string, signer bool) func(*Config) {
			return func(config *Config) { config.Writer, config.Signer = name, signer }
		}
		entry := func() Entry {
			t.Helper()
			p := read(t, client)
			testutil.Require(t, len(p.Entries) == 1 && p.Entries[0].Host == "node-1", "published: %+v, want one entry, of the node",
				p.Entries)
			return p.Entries[0]
		}
		first := startReplica(t, client, "node-1", state, pod("pod-1", false))
		time.Sleep(time.Hour)
		second := startReplica(t, client, "node-1", state, pod("pod-2", false))
		time.Sleep(takeover + renewal)
		writer := entry().Writer
		testutil.Expect(t, writer == "pod-1", "%s writes the entry of a process that lives", writer)
		first.stop()
		time.Sleep(takeover + renewal)
		if got := entry(); got.Writer != "pod-2" || got.NextSeconds < 3600 || got.NextSeconds > 3600+20*60 {
			t.Errorf("after a rollout: %+v, want that of the new Pod, with the time of the old one", got)
		}
		signer := startReplica(t, client, "node-1", state, pod("node-1", true))
		second.RingChanged()
		time.Sleep(2 * renewal)
		got := entry()
		testutil.Expect(t, got.Writer == "node-1" && got.Signer, "beside the external signer: %+v, want its entry", got)
		signer.stop()
		second.stop()
		signer = startReplica(t, client, "node-1", state, pod("node-1", true))
		if got := entry(); got.Writer != "node-1" || len(got.Signs) != len(got.Keys) {
			t.Errorf("after a restart: %+v", got)
		}
		signer.stop()
	})
}

// checked returns what /readyz says, as an error if it fails.
func checked(result check.Result, err error) (string, error) {
	for _, finding := range result.Findings {
		if finding.Unready {
			return "", errors.New(finding.Line())
		}
		result.Note += finding.Line()
	}
	return result.Note, err
}
