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
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/test/await"
)

// TestLostServingCA deletes the Secret of the serving CA under load: that is how a
// person is rid of its key. The rollover takes half a minute, because every
// kube-apiserver must have learned of the next CA before a leaf is signed with it.
func TestLostServingCA(t *testing.T) {
	c := controlPlane(t)
	m := c.manage(t)
	before := c.awaitCASecret(t, func(*corev1.Secret) error { return nil })
	load := c.traffic(t, c.namespace(t))
	load.Lasts(t, time.Second)
	c.deleteCASecret(t, before.UID)
	after := c.awaitCASecret(t, func(got *corev1.Secret) error {
		if got.UID == before.UID || len(got.Data["next.crt"]) == 0 {
			return errors.New("no successor of the CA is announced")
		}
		return nil
	})
	load.Lasts(t, 4*time.Second)
	if !testing.Short() {
		poll(t, "await a leaf of the next CA", func(ctx context.Context) error { return m.verifies(ctx, t, after.Data["next.crt"]) })
		load.Lasts(t, time.Second)
	}
	load.Unharmed(t)
}

// TestDamagedServingCA writes nonsense over the Secret, and then once more together with
// immutable: nobody can write it any more, and it is what it was once it has been deleted.
func TestDamagedServingCA(t *testing.T) {
	c := controlPlane(t)
	c.manage(t).faulty = true // writes that fail are logged
	before := c.awaitCASecret(t, func(*corev1.Secret) error { return nil })
	load := c.traffic(t, c.namespace(t))
	repaired := func(got *corev1.Secret) error {
		if got.Immutable != nil || !bytes.Equal(got.Data["ca.key"], before.Data["ca.key"]) ||
			!bytes.Equal(got.Data["ca.crt"], before.Data["ca.crt"]) {
			return errors.New("it is not repaired")
		}
		return nil
	}
	secrets := c.client.CoreV1().Secrets(metav1.NamespaceSystem)
	for _, immutable := range []string{"null", "true"} {
		damage := `{"immutable":` + immutable + `,"data":{"schema-version":"bm9uc2Vuc2U=","ca.crt":"bm9uc2Vuc2U=","ca.key":"bm9uc2Vuc2U="}}`
		if _, err := secrets.Patch(t.Context(), caSecretName, types.MergePatchType, []byte(damage), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		if immutable == "true" {
			load.Lasts(t, time.Second)
			if err := secrets.Delete(t.Context(), caSecretName, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		c.awaitCASecret(t, repaired)
		load.Lasts(t, time.Second)
	}
	load.Unharmed(t)
}

// verifies calls the webhook as kube-apiserver does with that caBundle.
func (m *manager) verifies(ctx context.Context, t *testing.T, caBundle []byte) error {
	t.Helper()
	client := m.client(t, func(config *tls.Config) {
		config.InsecureSkipVerify, config.RootCAs = false, x509.NewCertPool()
		config.RootCAs.AppendCertsFromPEM(caBundle)
	})
	_, err := m.call(ctx, client, "/readyz", nil)
	return err
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
	err := c.client.CoreV1().Secrets(metav1.NamespaceSystem).Delete(t.Context(), caSecretName,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if err != nil {
		t.Fatalf("delete the serving CA: %v", err)
	}
}
