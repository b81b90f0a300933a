// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/cert"
	"k8s.io/component-base/metrics"

	"sa-controller-manager/internal/events"
	"sa-controller-manager/internal/pki"
	"sa-controller-manager/internal/stateobject"
	"sa-controller-manager/internal/testutil"
)

func TestMain(m *testing.M) {
	// The library starts the queue of a file when it is read, also if it is not followed.
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("k8s.io/client-go/util/workqueue.(*delayingType[...]).waitingLoop"),
		goleak.IgnoreAnyFunction("k8s.io/client-go/util/workqueue.(*Typed[...]).updateUnfinishedWorkLoop"),
		goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

// configurations stand for the webhook configurations: what a registration writes into them a
// moment after the leader's caBundle changes, and the leader's watches show.
type configurations struct {
	mu     sync.Mutex
	bundle []byte
}

func (c *configurations) write(leader, follower *Managed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bundle = bytes.Clone(leader.CABundle())
	leader.Registered([][]byte{c.bundle, c.bundle}, false)
	follower.Registered([][]byte{c.bundle, c.bundle}, true)
}

// follow has what is registered follow the leader, two seconds late. Both replicas watch it.
func (c *configurations) follow(leader, follower *Managed) {
	c.write(leader, follower)
	leader.Subscribe(func([]byte) { time.AfterFunc(2*time.Second, func() { c.write(leader, follower) }) })
}

func (c *configurations) accept(m *Managed) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return accepts(m, c.bundle, "127.0.0.1")
}

func parse(t *testing.T, bundle []byte) []*x509.Certificate {
	t.Helper()
	return testutil.Get(cert.ParseCertsPEM(bundle))(t)
}

// accepts is what kube-apiserver does with the leaf that m serves.
func accepts(m *Managed, bundle []byte, host string) error {
	return acceptsAt(m, bundle, host, time.Now())
}

func acceptsAt(m *Managed, bundle []byte, host string, now time.Time) error {
	pair, err := m.GetCertificate(nil)
	if err != nil {
		return err
	}
	roots, others := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	for _, der := range pair.Certificate[1:] {
		addDER(others, der)
	}
	_, err = pair.Leaf.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: others, DNSName: host, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return err
}

// run starts a replica in the bubble. It ends before the test does.
func run(t *testing.T, config ManagedConfig) *Managed {
	t.Helper()
	m := NewManaged(config)
	testutil.Start(t, m.Run)
	synctest.Wait()
	return m
}

func secretOf(t *testing.T, client *fake.Clientset) *corev1.Secret {
	t.Helper()
	return testutil.Get(client.CoreV1().Secrets(SecretNamespace).Get(t.Context(), SecretName, metav1.GetOptions{}))(t)
}

var pause = testutil.Pause

func TestManagedFirstStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		registry := metrics.NewKubeRegistry()
		m := run(t, ManagedConfig{
			Client: client, Hosts: append(ServiceHosts("kube-system", "webhook"), "10.0.0.9"),
			Metrics: NewMetrics(registry.MustRegister),
		})
		testutil.Must(t, m.Ready())
		for _, host := range []string{"127.0.0.1", "webhook.kube-system.svc", "10.0.0.9"} {
			testutil.CheckError(t, "the leaf is refused for "+host, "", accepts(m, m.CABundle(), host))
		}
		testutil.Expect(t, accepts(m, m.CABundle(), "example.org") != nil, "the leaf is good for a host that it was not asked for")
		leaf := m.current.Load().serving.Leaf
		testutil.Expect(t, !leaf.IsCA && leaf.KeyUsage&x509.KeyUsageCertSign == 0, "the leaf could sign certificates")
		testutil.Expect(t, leaf.NotBefore.Before(time.Now().Add(-time.Minute)),
			"the leaf is valid from %s, which a caller with a slow clock refuses", leaf.NotBefore)
		testutil.Expect(t, leaf.SerialNumber.BitLen() >= 64, "the serial number %d is not random", leaf.SerialNumber)
		for _, key := range []string{stateobject.VersionKey, keyActiveCert, keyActiveKey} {
			testutil.Expect(t, len(secretOf(t, client).Data[key]) != 0, "the Secret lacks %s", key)
		}
		const name = "sacm_certificate_expiration_timestamp_seconds"
		want := []string{
			fmt.Sprintf("%s{name=%q} %g", name, nameServing, float64(leaf.NotAfter.Unix())),
			fmt.Sprintf("%s{name=%q} %g", name, nameActiveCA, float64(parse(t, m.CABundle())[0].NotAfter.Unix())),
		}
		testutil.Check(t, "metrics", want, testutil.Series(registry, name))
	})
}

func TestManagedLosesARace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		winner := madeAt(t, time.Now(), day)
		theirs := secretWith(t, state{active: winner})
		client.PrependReactor("create", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
			_ = client.Tracker().Add(theirs)
			return false, nil, nil
		})
		m := run(t, ManagedConfig{Client: client})
		testutil.CheckError(t, "the loser does not use what the winner wrote", "", accepts(m, pki.CertPEM(winner.cert), "127.0.0.1"))
	})
}

func TestManagedSaysWhatIsMissing(t *testing.T) {
	for _, verb := range []string{"create", "update"} { // of none, and of one with an expired CA
		synctest.Test(t, func(t *testing.T) {
			client := fake.NewClientset()
			if verb == "update" {
				client = fake.NewClientset(secretWith(t, state{active: madeAt(t, time.Now().Add(-2*day), day)}))
			}
			var forbidden atomic.Bool
			forbidden.Store(true)
			client.PrependReactor(verb, "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
				return forbidden.Load(), nil, apierrors.NewGenericServerResponse(http.StatusForbidden, verb, corev1.Resource("secrets"),
					SecretName, "no rights", 0, false)
			})
			m := run(t, ManagedConfig{Client: client})
			testutil.CheckError(t, "Ready", "write secret kube-system/"+SecretName, m.Ready())
			_, err := m.GetCertificate(nil)
			testutil.Expect(t, err != nil, "%s: there is a certificate out of nowhere, or of an expired CA", verb)
			testutil.Check(t, "caBundle out of nowhere", "", string(m.CABundle()))
			forbidden.Store(false)
			pause(maxBackoff)
			testutil.CheckError(t, "not ready after the rights were given", "", m.Ready())
			testutil.CheckError(t, "the leaf then", "", accepts(m, m.CABundle(), "127.0.0.1"))
		})
	}
}

// TestManagedAcrossAJump: leaves are renewed in time, and callers accept each of them, whether
// their own clock has jumped too, as on the same host, or not.
func TestManagedAcrossAJump(t *testing.T) {
	t.Parallel()
	testutil.EachJump(t, func(t *testing.T, jump time.Duration) {
		clock := testutil.NewJumpingClock()
		m := run(t, ManagedConfig{Client: fake.NewClientset(), Clock: clock, LeafLifetime: 6 * time.Hour, CALifetime: 6 * day})
		pause(time.Second)
		clock.Jump(jump)
		serials := map[string]bool{}
		for step := range 3 * 24 * 6 {
			for whose, now := range map[string]time.Time{"its own": time.Now(), "ours": clock.Now()} {
				err := acceptsAt(m, m.CABundle(), "127.0.0.1", now)
				testutil.Require(t, err == nil, "step %d: a caller whose clock is %s: %v", step, whose, err)
			}
			serials[m.current.Load().serving.Leaf.SerialNumber.String()] = true
			pause(10 * time.Minute)
		}
		n := len(serials)
		testutil.Expect(t, n >= 12 && n <= 20, "%d leaves in three days, want about one in four hours", n)
	})
}

// TestServingCAInAFile: after a deletion of the file a host changes to another CA, once kube-apiserver has
// that, however long it takes.
func TestServingCAInAFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		config := ManagedConfig{File: filepath.Join(dir, "serving-ca.json")}
		m := run(t, config)
		first := m.CABundle()
		testutil.Must(t, os.Remove(config.File))
		time.Sleep(time.Minute)
		own := m.CABundle()
		cas := parse(t, own)
		testutil.Require(t, len(cas) == 2, "the caBundle has %d CAs, want the first one and one to come", len(cas))
		m.Registered([][]byte{first}, false)
		time.Sleep(10 * time.Minute)
		testutil.Must(t, accepts(m, first, "127.0.0.1"))

		m.Registered([][]byte{own}, false)
		time.Sleep(time.Minute)
		testutil.Expect(t, accepts(m, first, "127.0.0.1") != nil, "the leaf is still of the first CA")
		testutil.Must(t, accepts(m, own, "127.0.0.1"))

		// A new process needs no API, and a damaged file is written again by the one that runs.
		testutil.Must(t, accepts(run(t, config), own, "127.0.0.1"))
		testutil.Must(t, os.WriteFile(config.File, []byte("{"), 0o600))
		time.Sleep(time.Minute)
		testutil.Must(t, accepts(run(t, config), own, "127.0.0.1"))
	})
}

// TestManagedNeverRefused: through rollovers, deletions and damage no caller ever meets a leaf that it cannot verify,
// although what is registered follows the leader two seconds late.
func TestManagedNeverRefused(t *testing.T) {
	damage := overwrite(keyActiveCert, "")
	for name, tc := range map[string]struct {
		reason string
		config ManagedConfig
		every  time.Duration
		harm   map[int]func(*testing.T, *fake.Clientset) // by step of 720
		cas    int                                       // of which leaves are, at least
		most   int                                       // in the caBundle
	}{
		"three lives of a CA": {
			reason: "rollovers are announced", config: ManagedConfig{CALifetime: 10 * day, LeafLifetime: day}, every: time.Hour,
			harm: map[int]func(*testing.T, *fake.Clientset){100: damage, 200: remove, 350: damage, 450: remove, 600: damage, 700: remove},
			cas:  5, most: 3,
		},
		"deleted twice": {
			reason: "with the second rollover the first CA is no longer the previous one", every: time.Second,
			harm: map[int]func(*testing.T, *fake.Clientset){10: remove, 70: remove}, cas: 3, most: 3,
		},
	} {
		testutil.Bubble(t, name, func(t *testing.T) {
			// As it is some days after a rollover.
			previous, first := madeAt(t, time.Now().Add(-2*day), 365*day), madeAt(t, time.Now().Add(-day), 365*day)
			client := fake.NewClientset(secretWith(t, state{active: first, previous: previous.cert}))
			tc.config.Client = client
			replicas := map[string]*Managed{"leader": run(t, tc.config), "follower": run(t, tc.config)}
			leader, registered, seen := replicas["leader"], &configurations{}, map[string]bool{}
			registered.follow(leader, replicas["follower"])
			for step := range 720 {
				if harm := tc.harm[step]; harm != nil {
					harm(t, client)
				}
				pause(tc.every)
				for who, m := range replicas {
					err := registered.accept(m)
					testutil.Require(t, err == nil, "%s: step %d: the %s is refused: %v", tc.reason, step, who, err)
				}
				seen[leader.current.Load().serving.Leaf.Issuer.CommonName] = true
				certificates := len(parse(t, leader.CABundle()))
				testutil.Require(t, certificates <= tc.most, "%s: step %d: the caBundle has grown to %d certificates", tc.reason, step,
					certificates)
			}
			testutil.Expect(t, len(seen) >= tc.cas, "%s: leaves were of %d CAs, want at least %d", tc.reason, len(seen), tc.cas)
			settled := testutil.Get(read(secretOf(t, client)))(t)
			for who, m := range replicas {
				testutil.CheckError(t, "the leaf of the "+who+" in the end", "", accepts(m, pki.CertPEM(settled.active.cert), "127.0.0.1"))
			}
			testutil.Expect(t, !bytes.Contains(leader.CABundle(), pki.CertPEM(first.cert)),
				"%s: the caBundle still has a CA that is not in use",
				tc.reason)
		})
	}
}

func remove(t *testing.T, client *fake.Clientset) {
	t.Helper()
	testutil.Must(t, client.CoreV1().Secrets(SecretNamespace).Delete(t.Context(), SecretName, metav1.DeleteOptions{}))
}

func overwrite(key, value string) func(*testing.T, *fake.Clientset) {
	return func(t *testing.T, client *fake.Clientset) {
		t.Helper()
		_, err := client.CoreV1().Secrets(SecretNamespace).Update(t.Context(), with(secretOf(t, client), key, value),
			metav1.UpdateOptions{})
		testutil.Must(t, err)
	}
}

func TestManagedRepairs(t *testing.T) {
	for name, harm := range map[string]func(*testing.T, *fake.Clientset){
		"deleted":         remove,
		"version damaged": overwrite(stateobject.VersionKey, "nonsense"),
		"key damaged":     overwrite(keyActiveKey, "rubbish"),
		"CA damaged":      overwrite(keyPreviousCert, "rubbish"), // that of leaves before
		"damaged and immutable, then deleted": func(t *testing.T, client *fake.Clientset) {
			client.PrependReactor("update", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Secret").GroupKind(), SecretName, nil)
			})
			damaged := with(secretOf(t, client), keyActiveKey, "rubbish")
			damaged.Immutable = new(true)
			testutil.Must(t, client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("secrets"), damaged, SecretNamespace))
			pause(time.Minute)
			remove(t, client)
		},
	} {
		testutil.Bubble(t, name, func(t *testing.T) {
			previous, active := madeAt(t, time.Now().Add(-2*day), 365*day), madeAt(t, time.Now().Add(-day), 365*day)
			client := fake.NewClientset(secretWith(t, state{active: active, previous: previous.cert}))
			sink := &recorded{}
			m := run(t, ManagedConfig{Client: client, Recorder: events.NewRecorderTo(sink)})
			before, data := m.current.Load().serving, secretOf(t, client).Data
			var empty bool
			m.Subscribe(func(bundle []byte) { empty = empty || len(bundle) == 0 })
			harm(t, client)
			pause(time.Second)
			for _, key := range []string{keyActiveKey, keyPreviousCert} {
				back := bytes.Equal(secretOf(t, client).Data[key], data[key])
				testutil.Check(t, "the Secret has got back its "+key, true, back)
			}
			testutil.Expect(t, m.current.Load().serving == before, "the leaf was replaced")
			if empty || !bytes.Contains(m.CABundle(), pki.CertPEM(active.cert)) ||
				!bytes.Contains(m.CABundle(), pki.CertPEM(previous.cert)) {
				t.Error("the caBundle lost a CA")
			}
			testutil.Check(t, "Events", []string{SecretName + " ServingCARepaired"}, sink.all)
		})
	}
}

// TestManagedImmutable: what nobody can change says so, and heals once it is deleted.
func TestManagedImmutable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		foreign := secretWith(t, state{active: madeAt(t, time.Now(), 365*day)})
		foreign.Data[keyActiveKey], foreign.Immutable = []byte("rubbish"), new(true)
		client := fake.NewClientset(foreign)
		m := run(t, ManagedConfig{Client: client})
		pause(time.Second)
		testutil.CheckError(t, "Ready", SecretName+" is immutable", m.Ready())
		remove(t, client)
		pause(maxBackoff)
		testutil.Must(t, m.Ready())
	})
}

// recorded is a sink that keeps of an Event which object it regards and its reason.
type recorded struct{ all []string }

func (r *recorded) Event(regarding runtime.Object, _, reason, _ string) {
	r.all = append(r.all, regarding.(*corev1.ObjectReference).Name+" "+reason)
}

// Another client that undoes every write does not make us flood kube-apiserver.
func TestManagedDoesNotFight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		m := run(t, ManagedConfig{Client: client})
		var writes int
		client.PrependReactor("create", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
			writes++
			time.AfterFunc(time.Millisecond, func() {
				_ = client.CoreV1().Secrets(SecretNamespace).Delete(context.Background(), SecretName, metav1.DeleteOptions{})
			})
			return false, nil, nil
		})
		_ = client.CoreV1().Secrets(SecretNamespace).Delete(t.Context(), SecretName, metav1.DeleteOptions{})
		const during = 20 * time.Second
		pause(during)
		const want = writeBurst + int(during/writeInterval)
		testutil.Expect(t, writes >= writeBurst && writes <= want+1, "%d writes in %s of being deleted, want between %d and %d", writes,
			during,
			writeBurst, want+1)
		testutil.CheckError(t, "not ready", "", m.Ready())
	})
}
