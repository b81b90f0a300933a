// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/cert"

	"sa-controller-manager/test/await"
)

// TestLostServingCA deletes the Secret of the serving CA under load: that is how a
// person is rid of its key. The rollover takes half a minute, because every
// kube-apiserver must have learned of the next CA before a leaf is signed with it.
func TestLostServingCA(t *testing.T) {
	c := controlPlane(t)
	m := c.manage(t)
	before := c.awaitCASecret(t, func(*corev1.Secret) error { return nil })
	leaf := m.leaf(t)
	traffic := c.traffic(t, c.namespace(t))
	traffic.lasts(t, time.Second)
	c.deleteCASecret(t, before.UID)
	c.awaitCASecret(t, func(got *corev1.Secret) error {
		if got.UID == before.UID {
			return errors.New("it is still the first one")
		}
		return nil
	})
	traffic.lasts(t, 4*time.Second)
	if !testing.Short() {
		m.awaitOtherLeaf(t, leaf)
		traffic.lasts(t, time.Second)
	}
	traffic.unharmed(t)
}

// TestDamagedServingCA has a person write nonsense over the Secret.
func TestDamagedServingCA(t *testing.T) {
	c := controlPlane(t)
	c.manage(t)
	before := c.awaitCASecret(t, func(*corev1.Secret) error { return nil })
	traffic := c.traffic(t, c.namespace(t))
	damage := []byte(`{"data":{`)
	for key := range before.Data {
		damage = fmt.Appendf(damage, "%q:%q,", key, "bm9uc2Vuc2U=")
	}
	damage = append(bytes.TrimSuffix(damage, []byte(",")), "}}"...)
	if _, err := c.client.CoreV1().Secrets(metav1.NamespaceSystem).Patch(t.Context(), caSecretName, types.MergePatchType, damage, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	c.awaitCASecret(t, func(got *corev1.Secret) error {
		for key, value := range got.Data {
			if string(value) == "nonsense" {
				return fmt.Errorf("%s is still nonsense", key)
			}
		}
		return nil
	})
	traffic.lasts(t, time.Second)
	traffic.unharmed(t)
}

// TestReplicasShareOneCA starts three replicas at the same time in a cluster without a
// serving CA. One of them makes it, and no caller ever meets a leaf of another one.
func TestReplicasShareOneCA(t *testing.T) {
	c := controlPlane(t)
	flags := []string{"--webhook-registration=url", "--leader-elect=true", "--leader-elect-resource-name=webhook-cold-start"}
	replicas := []*manager{c.start(t, flags...), c.start(t, flags...), c.start(t, flags...)}
	for _, m := range replicas {
		m.awaitReady(t)
	}
	c.awaitBound(t)
	configuration := c.awaitMutating(t, func(*mutatingConfiguration) error { return nil })
	authorities, err := cert.ParseCertsPEM(configuration.Webhooks[0].ClientConfig.CABundle)
	if err != nil {
		t.Fatal(err)
	}
	if len(authorities) != 1 {
		t.Errorf("the caBundle holds %d certificates, want one", len(authorities))
	}
	roots := x509.NewCertPool()
	for _, authority := range authorities {
		roots.AddCert(authority)
	}
	made := 0
	for _, m := range replicas {
		verifying := m.client(t, func(config *tls.Config) { config.InsecureSkipVerify, config.RootCAs = false, roots })
		if _, err := m.call(t.Context(), verifying, "/readyz", nil); err != nil {
			t.Errorf("kube-apiserver would not accept a replica: %v", err)
		}
		if got := m.handshakeErrors(t, "certificate_refused"); got != 0 {
			t.Errorf("%v callers have not accepted a replica", got)
		}
		made += strings.Count(m.Logs(), "Wrote the serving CA")
	}
	if made != 1 {
		t.Errorf("the serving CA was written %d times, want once", made)
	}
}

// leaf is the certificate that the webhook serves with now.
func (m *manager) leaf(t *testing.T) *x509.Certificate {
	t.Helper()
	leaf, err := m.handshake()
	if err != nil {
		t.Fatal(err)
	}
	return leaf
}

func (m *manager) handshake() (*x509.Certificate, error) {
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(m.port))
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		return nil, fmt.Errorf("dial the webhook: %w", err)
	}
	defer func() { _ = conn.Close() }()
	return conn.ConnectionState().PeerCertificates[0], nil
}

// awaitOtherLeaf returns once the webhook serves with a leaf of another CA.
func (m *manager) awaitOtherLeaf(t *testing.T, old *x509.Certificate) {
	t.Helper()
	poll(t, "await a leaf of the next CA", func(context.Context) error {
		leaf, err := m.handshake()
		if err == nil && bytes.Equal(leaf.AuthorityKeyId, old.AuthorityKeyId) {
			err = errors.New("the leaf is of the same CA")
		}
		return err
	})
}

// awaitCASecret returns the Secret of the serving CA once it passes the check.
func (c *cluster) awaitCASecret(t *testing.T, check func(*corev1.Secret) error) *corev1.Secret {
	t.Helper()
	secrets, err := await.Secrets(limited(t), c.client, metav1.NamespaceSystem, func(secrets []*corev1.Secret) error {
		secret, ok := await.Find(secrets, caSecretName)
		if !ok {
			return fmt.Errorf("%q does not exist", caSecretName)
		}
		return check(secret)
	})
	if err != nil {
		t.Fatalf("await the serving CA: %v", err)
	}
	secret, _ := await.Find(secrets, caSecretName)
	return secret
}

func (c *cluster) deleteCASecret(t *testing.T, uid types.UID) {
	t.Helper()
	err := c.client.CoreV1().Secrets(metav1.NamespaceSystem).Delete(t.Context(), caSecretName, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if err != nil {
		t.Fatalf("delete the serving CA: %v", err)
	}
}
