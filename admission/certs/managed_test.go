// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"net/http"
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
	"k8s.io/client-go/util/cert"
	"k8s.io/component-base/metrics"

	"sa-controller-manager/internal/pki"
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

func parse(t *testing.T, bundle []byte) []*x509.Certificate {
	t.Helper()
	all, err := cert.ParseCertsPEM(bundle)
	testutil.Must(t, err)
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
	testutil.Start(t, m.Run)
	synctest.Wait()
	return m
}

func secretOf(t *testing.T, client *fake.Clientset) *corev1.Secret {
	t.Helper()
	secret, err := client.CoreV1().Secrets(SecretNamespace).Get(t.Context(), SecretName, metav1.GetOptions{})
	testutil.Must(t, err)
	return secret
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
			Metrics: NewMetrics(registry.MustRegister),
		})
		if err := m.Ready(); err != nil {
			t.Fatalf("not ready: %v", err)
		}
		for _, host := range []string{"127.0.0.1", "webhook.kube-system.svc", "10.0.0.9"} {
			testutil.CheckError(t, "the leaf is refused for "+host, "", accepts(m, m.CABundle(), host))
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
		const name = "sacm_certificate_expiration_timestamp_seconds"
		want := []string{
			fmt.Sprintf("%s{name=%q} %g", name, nameServing, float64(leaf.NotAfter.Unix())),
			fmt.Sprintf("%s{name=%q} %g", name, nameActiveCA, float64(parse(t, m.CABundle())[0].NotAfter.Unix())),
		}
		testutil.Check(t, "metrics", want, testutil.Series(registry, name))
	})
}

// putOther has another client put a CA of its own in the place of ours. The previous one stays.
func putOther(t *testing.T, client *fake.Clientset) {
	t.Helper()
	found := secretOf(t, client)
	secret, err := state{active: madeAt(t, time.Now(), day), previous: read(found).previous}.writeInto(found)
	testutil.Must(t, err)
	_, err = client.CoreV1().Secrets(SecretNamespace).Update(t.Context(), secret, metav1.UpdateOptions{})
	testutil.Must(t, err)
}

func TestManagedExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		secret := secretWith(t, state{active: madeAt(t, time.Now().Add(-2*day), day)})
		m := run(t, ManagedConfig{Client: fake.NewClientset(secret)})
		pause(2 * time.Second)
		testutil.CheckError(t, "after a start with an expired CA", "", accepts(m, m.CABundle(), "127.0.0.1"))
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
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		var forbidden atomic.Bool
		forbidden.Store(true)
		client.PrependReactor("create", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
			return forbidden.Load(), nil, apierrors.NewGenericServerResponse(http.StatusForbidden, "create", corev1.Resource("secrets"),
				SecretName, "no rights", 0, false)
		})
		m := run(t, ManagedConfig{Client: client})
		testutil.CheckError(t, "Ready", "write secret kube-system/"+SecretName, m.Ready())
		if _, err := m.GetCertificate(nil); err == nil {
			t.Error("there is a certificate out of nowhere")
		}
		testutil.Check(t, "caBundle out of nowhere", "", string(m.CABundle()))
		forbidden.Store(false)
		pause(maxBackoff)
		testutil.CheckError(t, "not ready after the rights were given", "", m.Ready())
	})
}
