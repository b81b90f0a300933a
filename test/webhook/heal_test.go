// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/test/await"
)

// healLimit is how long it may take until all is well again, without anybody's help.
const healLimit = 10 * time.Second

// TestStartIntoDamage has a manager start in a cluster whose registration is bound and
// broken, so that no Pod can be created. Nobody remembers how it was.
func TestStartIntoDamage(t *testing.T) {
	await.Long(t)
	expired, err := newAuthority("expired", time.Now().Add(-48*time.Hour), time.Now().Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	key, err := keyPEM(expired.key)
	if err != nil {
		t.Fatal(err)
	}
	theirs := certPEM(expired.cert.Raw)
	cases := map[string]struct {
		reason string
		secret map[string]string // nil for: deleted; no entry stays
		bundle []byte            // nil for: stays
	}{
		"ExpiredCA": {
			reason: "everybody was away for longer than it lived",
			secret: map[string]string{"schema-version": "1", "ca.crt": string(theirs), "ca.key": string(key)}, bundle: theirs,
		},
		"SecretDeleted":  {reason: "its key is gone for good"},
		"NoVersion":      {reason: "no program writes that", secret: map[string]string{"schema-version": "nonsense", "ca.key": "nonsense"}},
		"DeletedAndMore": {reason: "several at once", bundle: theirs},
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
			if err := second.AwaitLog(limited(t), "Wrote the serving CA"); err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			secret := c.awaitCASecret(t, func(got *corev1.Secret) error {
				if string(got.Data["schema-version"]) != "1" || bytes.Equal(got.Data["ca.crt"], theirs) || bytes.Equal(got.Data["ca.key"], before.Data["ca.key"]) {
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
			inTime(t, begun)
			second.awaitReady(t)
			c.awaitBound(t)
			if t.Failed() {
				t.Log(tc.reason)
			}
		})
	}
}

// TestSeveralAtOnce has a person delete the Secret and edit both caBundles while the
// leader runs.
func TestSeveralAtOnce(t *testing.T) {
	c := controlPlane(t)
	c.manage(t)
	other, err := newAuthority("other", time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	c.deleteCASecret(t, c.awaitCASecret(t, func(*corev1.Secret) error { return nil }).UID)
	c.setBundles(t, certPEM(other.cert.Raw))
	c.awaitMutating(t, func(got *mutatingConfiguration) error {
		if bytes.Equal(got.Webhooks[0].ClientConfig.CABundle, certPEM(other.cert.Raw)) {
			return errors.New("the caBundle is the wrong one")
		}
		return nil
	})
	c.awaitCASecret(t, func(*corev1.Secret) error { return nil })
	c.awaitBound(t)
	await.Within(t, "all of it", time.Since(begun), healLimit)
}

// setBundles does what a person would do to both configurations.
func (c *cluster) setBundles(t *testing.T, bundle []byte) {
	t.Helper()
	patch := fmt.Sprintf(`[{"op":"replace","path":"/webhooks/0/clientConfig/caBundle","value":%q}]`, base64.StdEncoding.EncodeToString(bundle))
	c.patchMutating(t, patch)
	c.patchValidating(t, patch)
}

// TestRefusedCallsAreCounted edits the caBundle under load. Calls are refused until that
// is repaired, and the webhook knows how many: kube-apiserver tells it in the handshake.
func TestRefusedCallsAreCounted(t *testing.T) {
	c := controlPlane(t)
	m := c.manage(t)
	other, err := newAuthority("other", time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	right := c.awaitMutating(t, func(*mutatingConfiguration) error { return nil })
	patch := fmt.Sprintf(`[{"op":"replace","path":"/webhooks/0/clientConfig/caBundle","value":%q}]`,
		base64.StdEncoding.EncodeToString(certPEM(other.cert.Raw)))
	var refused int
	// The repair may come before any call; then it is edited once more. A few repairs are
	// made at once.
	for range 4 {
		before := m.handshakeErrors(t, "certificate_refused")
		hammer := c.hammer(t)
		hammer.await(t, 20)
		begun := time.Now()
		c.patchMutating(t, patch)
		c.awaitMutating(t, func(got *mutatingConfiguration) error { return same(right.Webhooks, got.Webhooks) })
		inTime(t, begun)
		hammer.await(t, 20)
		refused = hammer.finish(t, begun)
		m.awaitHandshakeErrors(t, "certificate_refused", before+float64(refused))
		if refused > 0 {
			break
		}
	}
	t.Logf("%d calls were refused", refused)
	if refused == 0 {
		t.Error("no call met the wrong caBundle")
	}
}

// hammer creates Pods with dryRun as fast as it can.
type hammer struct {
	stop context.CancelFunc
	done sync.WaitGroup

	mu    sync.Mutex
	calls []call
}

func (c *cluster) hammer(t *testing.T) *hammer {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	h := &hammer{stop: cancel}
	for range 4 {
		h.done.Go(func() {
			for ctx.Err() == nil {
				one := call{begun: time.Now()}
				one.pod, one.err = c.try(context.WithoutCancel(ctx), metav1.NamespaceDefault, newPod())
				one.ended = time.Now()
				h.mu.Lock()
				h.calls = append(h.calls, one)
				h.mu.Unlock()
			}
		})
	}
	t.Cleanup(func() { cancel(); h.done.Wait() })
	return h
}

// await returns once that many more calls were admitted.
func (h *hammer) await(t *testing.T, more int) {
	t.Helper()
	begun := time.Now()
	poll(t, "await that Pods are admitted", func(context.Context) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		admitted := 0
		for _, one := range h.calls {
			if one.err == nil && one.begun.After(begun) {
				admitted++
			}
		}
		if admitted < more {
			return fmt.Errorf("%d of %d", admitted, len(h.calls))
		}
		return nil
	})
}

// finish tells how many calls were refused because of the certificate. Others must not
// be, and those only within the limit.
func (h *hammer) finish(t *testing.T, edited time.Time) int {
	t.Helper()
	h.stop()
	h.done.Wait()
	refused := 0
	for _, one := range h.calls {
		switch {
		case one.err == nil:
		case !strings.Contains(one.err.Error(), "x509: certificate signed by unknown authority"):
			t.Errorf("a call was refused: %v", one.err)
		case one.begun.After(edited.Add(repairLimit)):
			t.Errorf("a call was refused %v after the edit", one.begun.Sub(edited))
		default:
			refused++
		}
	}
	return refused
}

// TestImmutableServingCA makes the Secret immutable and damages it, under load. It cannot be
// written any more, and is again what it was once it has been deleted.
func TestImmutableServingCA(t *testing.T) {
	c := controlPlane(t)
	c.manage(t).faulty = true // writes that fail are logged
	before := c.awaitCASecret(t, func(*corev1.Secret) error { return nil })
	traffic := c.traffic(t, c.namespace(t))
	damage := []byte(`{"immutable":true,"data":{"ca.key":"bm9uc2Vuc2U="}}`)
	secrets := c.client.CoreV1().Secrets(metav1.NamespaceSystem)
	if _, err := secrets.Patch(t.Context(), caSecretName, types.MergePatchType, damage, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	traffic.lasts(t, time.Second)
	if err := secrets.Delete(t.Context(), caSecretName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.awaitCASecret(t, func(got *corev1.Secret) error {
		if got.Immutable != nil || !bytes.Equal(got.Data["ca.key"], before.Data["ca.key"]) {
			return errors.New("it has not been restored")
		}
		return nil
	})
	traffic.lasts(t, time.Second)
	traffic.unharmed(t)
}
