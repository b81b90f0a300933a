// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
)

// TestStartIntoDamage has a manager start in a cluster whose registration is bound and
// broken, so that no Pod can be created. Nobody remembers how it was.
func TestStartIntoDamage(t *testing.T) {
	await.Long(t)
	expired, err := devcluster.NewAuthority("expired", func(template *x509.Certificate) {
		template.NotBefore, template.NotAfter = time.Now().Add(-48*time.Hour), time.Now().Add(-time.Hour)
	})
	testutil.Must(t, err)
	key, err := expired.Key()
	testutil.Must(t, err)
	theirs := expired.PEM()
	cases := map[string]struct {
		secret map[string]string // nil for: deleted; no entry stays
		bundle []byte            // nil for: stays
	}{
		// All replicas were away for longer than it lived.
		"ExpiredCA":      {secret: map[string]string{"schema-version": "1", "ca.crt": string(theirs), "ca.key": string(key)}, bundle: theirs},
		"SecretDeleted":  {}, // its key is gone for good
		"NoVersion":      {secret: map[string]string{"schema-version": "nonsense", "ca.key": "nonsense"}},
		"DeletedAndMore": {bundle: theirs},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := controlPlane(t)
			first := c.manage(t)
			first.stop(t)
			before := c.awaitCASecret(t, func(*corev1.Secret) error { return nil })
			c.deleteCASecret(t, before.UID)
			if tc.secret != nil {
				damaged := before.DeepCopy()
				damaged.ResourceVersion, damaged.UID = "", ""
				for key, value := range tc.secret {
					damaged.Data[key] = []byte(value)
				}
				if _, err := c.client.CoreV1().Secrets(metav1.NamespaceSystem).Create(t.Context(), damaged, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			if tc.bundle != nil {
				c.setBundles(t, tc.bundle)
			}
			if _, err := c.try(t.Context(), metav1.NamespaceDefault, newPod()); err == nil {
				t.Fatal("Pods can be created, so this shows nothing")
			}
			second := c.start(t, "--webhook-registration=url", "--webhook-port="+strconv.Itoa(first.port))
			testutil.Must(t, second.AwaitLog(limited(t), "Wrote the serving CA"))
			begun := time.Now()
			secret := c.awaitCASecret(t, func(got *corev1.Secret) error {
				if string(got.Data["schema-version"]) != "1" || bytes.Equal(got.Data["ca.crt"], theirs) ||
					bytes.Equal(got.Data["ca.key"], before.Data["ca.key"]) {
					return errors.New("it is not repaired")
				}
				return nil
			})
			check := func(bundle []byte) error {
				if !bytes.Contains(bundle, secret.Data["ca.crt"]) || bytes.Contains(bundle, theirs) {
					return errors.New("the caBundle is not the new CA")
				}
				return nil
			}
			c.awaitMutating(t, func(got *mutatingConfiguration) error { return check(got.Webhooks[0].ClientConfig.CABundle) })
			c.awaitValidating(t, func(got *validatingConfiguration) error { return check(got.Webhooks[0].ClientConfig.CABundle) })
			t.Logf("%v after the new CA both caBundles have it", time.Since(begun)) // a new leader proves first: no repair of a moment
			second.awaitReady(t)
			c.awaitBound(t)
		})
	}
}

// setBundles does what a person would do to both configurations.
func (c *cluster) setBundles(t *testing.T, bundle []byte) {
	t.Helper()
	patch := fmt.Sprintf(`[{"op":"replace","path":"/webhooks/0/clientConfig/caBundle","value":%q}]`, base64.StdEncoding.EncodeToString(bundle))
	c.patchMutating(t, patch)
	c.patchValidating(t, patch)
}
