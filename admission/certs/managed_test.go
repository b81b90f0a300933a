// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"context"
	"crypto/x509"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/metrics"

	"sa-controller-manager/internal/stateobject"
	"sa-controller-manager/internal/testutil"
)

// configurations stand for the webhook configurations: what a registration writes into them a
// moment after the leader's caBundle changes, and the leader's watches show.
type configurations struct {
	mu     sync.Mutex
	bundle []byte
}

func (c *configurations) write(leader *Managed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bundle = bytes.Clone(leader.CABundle())
	leader.Registered([][]byte{c.bundle, c.bundle}, false)
}

// follow has what is registered follow the leader, two seconds late.
func (c *configurations) follow(leader *Managed) {
	c.write(leader)
	leader.OnChange(func() { time.AfterFunc(2*time.Second, func() { c.write(leader) }) })
}

func (c *configurations) accept(m *Managed) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return accepts(m, c.bundle, "127.0.0.1")
}

func parse(bundle []byte) []*x509.Certificate {
	var all []*x509.Certificate
	for block := range strings.SplitSeq(string(bundle), "-----END CERTIFICATE-----\n") {
		if block == "" {
			continue
		}
		ca, err := readCA([]byte(block + "-----END CERTIFICATE-----\n"))
		if err != nil {
			panic(err)
		}
		all = append(all, ca)
	}
	return all
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
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
	return m
}

func secretOf(t *testing.T, client *fake.Clientset) *corev1.Secret {
	t.Helper()
	secret, err := client.CoreV1().Secrets(SecretNamespace).Get(t.Context(), SecretName, metav1.GetOptions{})
	testutil.Must(t, err)
	return secret
}

// gauges are the series of the one metric, by the value of their only label.
func gauges(t *testing.T, registry metrics.KubeRegistry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	testutil.Must(t, err)
	got := map[string]float64{}
	for _, family := range families {
		for _, series := range family.GetMetric() {
			got[series.GetLabel()[0].GetValue()] = series.GetGauge().GetValue()
		}
	}
	return got
}

func pause(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestManagedFirstStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		registry := metrics.NewKubeRegistry()
		m := run(t, ManagedConfig{
			Client: client, Hosts: append(ServiceHosts("kube-system", "webhook"), "10.0.0.9"),
			Metrics: NewMetrics(func(r ...metrics.Registerable) { registry.MustRegister(r...) }),
		})
		if err := m.Ready(); err != nil {
			t.Fatalf("not ready: %v", err)
		}
		for _, host := range []string{"127.0.0.1", "webhook.kube-system.svc", "10.0.0.9"} {
			if err := accepts(m, m.CABundle(), host); err != nil {
				t.Errorf("the leaf is refused for %s: %v", host, err)
			}
		}
		if err := accepts(m, m.CABundle(), "example.org"); err == nil {
			t.Error("the leaf is good for a host that it was not asked for")
		}
		leaf := m.current.Load().serving.Leaf
		if leaf.IsCA || leaf.KeyUsage&x509.KeyUsageCertSign != 0 {
			t.Error("the leaf could sign certificates")
		}
		if !leaf.NotBefore.Before(time.Now().Add(-time.Minute)) {
			t.Errorf("the leaf is valid from %s, which a caller with a slow clock refuses", leaf.NotBefore)
		}
		if leaf.SerialNumber.BitLen() < 64 {
			t.Errorf("the serial number %d is not random", leaf.SerialNumber)
		}
		for _, key := range []string{stateobject.VersionKey, keyActiveCert, keyActiveKey} {
			if len(secretOf(t, client).Data[key]) == 0 {
				t.Errorf("the Secret lacks %s", key)
			}
		}
		want := map[string]float64{nameServing: float64(leaf.NotAfter.Unix()), nameActiveCA: float64(parse(m.CABundle())[0].NotAfter.Unix())}
		testutil.Check(t, "metrics", want, gauges(t, registry))
	})
}

func TestManagedColdStartOfThree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		var all []*Managed
		for range 3 {
			m := NewManaged(ManagedConfig{Client: client})
			all = append(all, m)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for _, m := range all {
			running.Go(func() {
				if err := m.Run(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		pause(time.Second)
		for i, m := range all {
			if err := m.Ready(); err != nil {
				t.Errorf("replica %d is not ready: %v", i, err)
			}
			if !bytes.Equal(m.CABundle(), all[0].CABundle()) {
				t.Errorf("replica %d has another caBundle", i)
			}
			if err := accepts(m, all[0].CABundle(), "127.0.0.1"); err != nil {
				t.Errorf("the leaf of replica %d is refused: %v", i, err)
			}
		}
		cancel()
		running.Wait()
	})
}

// Through three lives of a CA, with rollovers, deletions, damage and a leader that registers
// two seconds late, no caller ever meets a leaf that it cannot verify.
func TestManagedNeverRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		registered := &configurations{}
		leader := run(t, ManagedConfig{Client: client, CALifetime: 10 * day, LeafLifetime: day})
		follower := run(t, ManagedConfig{Client: client, CALifetime: 10 * day, LeafLifetime: day})
		registered.follow(leader)
		seen := map[string]bool{}
		for step := range 3 * 10 * 24 {
			time.Sleep(time.Hour)
			switch {
			case step%250 == 200:
				_ = client.CoreV1().Secrets(SecretNamespace).Delete(t.Context(), SecretName, metav1.DeleteOptions{})
			case step%250 == 100:
				_, _ = client.CoreV1().Secrets(SecretNamespace).Update(t.Context(), with(secretOf(t, client), keyActiveCert, ""),
					metav1.UpdateOptions{})
			}
			for name, m := range map[string]*Managed{"leader": leader, "follower": follower} {
				if err := registered.accept(m); err != nil {
					t.Fatalf("step %d: the %s is refused: %v", step, name, err)
				}
			}
			seen[leader.current.Load().serving.Leaf.Issuer.CommonName] = true
			if certificates := len(parse(leader.CABundle())); certificates > 3 {
				t.Fatalf("step %d: the caBundle has grown to %d certificates", step, certificates)
			}
		}
		if len(seen) < 5 {
			t.Errorf("leaves were of %d CAs in three lives with deletions, want at least 5", len(seen))
		}
	})
}

// putOther has somebody put a CA of their own in the place of ours. The previous one stays.
func putOther(t *testing.T, client *fake.Clientset) *authority {
	t.Helper()
	other, err := newAuthority(time.Now(), day)
	testutil.Must(t, err)
	found := secretOf(t, client)
	secret, err := state{active: other, previous: read(found).previous}.writeInto(found)
	testutil.Must(t, err)
	if _, err := client.CoreV1().Secrets(SecretNamespace).Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	return other
}

func TestManagedExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		expired, err := newAuthority(time.Now().Add(-2*day), day)
		testutil.Must(t, err)
		secret, err := state{active: expired}.writeInto(emptySecret())
		testutil.Must(t, err)
		m := run(t, ManagedConfig{Client: fake.NewClientset(secret)})
		pause(2 * time.Second)
		if err := accepts(m, m.CABundle(), "127.0.0.1"); err != nil {
			t.Errorf("after a start with an expired CA: %v", err)
		}
	})
}

func TestManagedLosesARace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		winner, err := newAuthority(time.Now(), day)
		testutil.Must(t, err)
		theirs, err := state{active: winner}.writeInto(emptySecret())
		testutil.Must(t, err)
		client.PrependReactor("create", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
			_ = client.Tracker().Add(theirs)
			return false, nil, nil
		})
		m := run(t, ManagedConfig{Client: client})
		if err := accepts(m, certPEM(winner.cert), "127.0.0.1"); err != nil {
			t.Errorf("the loser does not use what the winner wrote: %v", err)
		}
	})
}

func TestManagedSaysWhatIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		var forbidden atomic.Bool
		forbidden.Store(true)
		client.PrependReactor("create", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
			return forbidden.Load(), nil, apierrors.NewGenericServerResponse(http.StatusForbidden, "create", corev1.Resource("secrets"),
				SecretName, "no rights", 0, false)
		})
		m := run(t, ManagedConfig{Client: client})
		if err := m.Ready(); err == nil || !strings.Contains(err.Error(), "write secret kube-system/"+SecretName) {
			t.Errorf("Ready = %v, want it to name the Secret", err)
		}
		if _, err := m.GetCertificate(nil); err == nil {
			t.Error("there is a certificate out of nowhere")
		}
		if len(m.CABundle()) != 0 {
			t.Error("there is a caBundle out of nowhere")
		}
		forbidden.Store(false)
		pause(maxBackoff)
		if err := m.Ready(); err != nil {
			t.Errorf("not ready after the rights were given: %v", err)
		}
	})
}
