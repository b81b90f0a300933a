// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/test/integration/testcluster"
)

// TestRotateByPolicy rotates from start to prune with no command. A pause holds it, and so does a
// kube-apiserver that cannot be asked.
func TestRotateByPolicy(t *testing.T) {
	d := ringFile{path: filepath.Join(t.TempDir(), "keys", "ring.json")}
	testcluster.Run(t, "", "keys", "init", d.flag(), "--algorithm=P-256").ExpectCode(t, 0)
	testcluster.Run(t, "", "keys", "rotate", "pause", d.flag()).ExpectCode(t, 0)

	c := startSigner(t, append(d.flags(), "--rotate-every=4s", "--cache-age=1s", "--hold-down=0s", "--longest-token-lifetime=5s",
		"--rotate-algorithm=RSA-2048")...)
	d.cluster = c.ControlPlane
	awaitReadyDetail(t, c.manager, "[+]key-rotation ok: it is paused since")
	first := d.must(t, "list").role(t, "active")

	ctx := testcluster.Context(t)
	leases := c.API.CoordinationV1().Leases(metav1.NamespaceSystem)
	absent, err := leases.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "apiserver-absent", Labels: map[string]string{
			"apiserver.kubernetes.io/identity": "kube-apiserver", corev1.LabelHostname: "cp-2",
		}},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: new("absent"), LeaseDurationSeconds: new(int32(3600)), RenewTime: new(metav1.NowMicro())},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if ring := d.must(t, "rotate", "resume"); ring.role(t, "active") != first {
		t.Error("a paused ring was rotated")
	}
	c.AwaitEvent(t, testcluster.AboutProcess("KeyRotationStep"), "published a new key")
	c.AwaitWarning(t, testcluster.AboutProcess("KeyRotationHeld"), "kube-apiserver runs on 2 hosts")
	awaitReadyDetail(t, c.manager, "[+]key-rotation ok: kube-apiserver runs on 2 hosts")
	if ring, _, _ := d.run(t, "list"); ring.role(t, "active") != first {
		t.Error("a key signs that one kube-apiserver was not asked about")
	}
	c.manager.AwaitMetric(t, "sacm_key_next_rotation_timestamp_seconds", nil, 1)
	c.manager.AwaitMetric(t, "sacm_signing_key_activated_timestamp_seconds", nil, 1)

	if err := leases.Delete(ctx, absent.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	testcluster.Poll(t, "await the prune of the first key", func() error {
		if state := testcluster.ReadFile(t, d.path); !bytes.Contains(state, []byte(`"pruned": [`)) {
			return errors.New("no key is pruned")
		}
		return nil
	})
	testcluster.Run(t, "", "keys", "rotate", "pause", d.flag()).ExpectCode(t, 0)
	account := c.CreateAccount(t, c.Namespace(t), "signed")
	testcluster.Poll(t, "await tokens of the new key", func() error {
		d.watchCanary(t)
		token := c.requested(t, account)
		reviewed, err := c.Review(ctx, token)
		if header, _ := testcluster.DecodeToken(t, []byte(token)); err != nil || !reviewed.Authenticated || header["kid"] == first ||
			!strings.HasPrefix(fmt.Sprint(header["alg"]), "RS") {
			return fmt.Errorf("header %v, %v %s", header, err, reviewed.Error)
		}
		return nil
	})
}
