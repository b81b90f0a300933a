// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kind

import (
	"context"
	"fmt"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/tokens"
)

// TestSignerTakeover takes over what signs and nothing else, rotates, and hands back, while Pods are created. Of the two
// manifests only that of kube-apiserver changes, and comes back byte for byte.
func TestSignerTakeover(t *testing.T) {
	const pki, ring = "/etc/kubernetes/pki", "--service-account-key-ring=/etc/kubernetes/pki/sa-keys/ring.json"
	c := create(t, stock(t, 1))
	c.awaitPods(t, metav1.NamespaceSystem, allReady)
	usual := c.outageOfAnEdit(t)
	before := c.controlPlaneManifests(t)
	held := map[string]string{} // tokens, by what was done before
	first := c.signs(t, held, "nothing")

	admin := "--kubeconfig=/etc/kubernetes/admin.conf"
	c.product(t, "keys", "init", ring, admin, "--from-private-key-file="+pki+"/sa.key", "--service-account-key-file="+pki+"/sa.pub")
	took := c.underTraffic(t, "during-takeover", func() { t.Log(c.product(t, "kubeadm", "takeover", "--only=signer")) })
	within(t, "takeover", took, 1, usual)
	testutil.Check(t, "kube-controller-manager", before["kube-controller-manager"], c.readManifest(t, "kube-controller-manager"))
	t.Log(c.product(t, "kubeadm", "status"))
	key := c.signs(t, held, "the takeover")
	testutil.Expect(t, key == first, "key %s signs after the takeover, want %s", key, first)
	former := []string{first}
	if took := c.underTraffic(t, "during-rotations", func() {
		for _, name := range []string{"a rotation", "two rotations"} {
			c.product(t, "keys", "rotate", ring, admin, "--wait", "--cache-age=1s")
			former = append(former, c.signs(t, held, name, former...))
		}
	}); len(took) > 0 {
		t.Errorf("kube-apiserver was away for %v during rotations", took)
	}
	const namespace = "signed"
	c.namespace(t, namespace)
	c.awaitDefaultAccount(t, namespace)
	answers := c.answers(t, namespace, c.asker(t, on(c.name+"-worker")))
	c.isAccount(t, answers["main"].Username, answers["main"].Groups, namespace)
	c.product(t, "keys", "export", ring, "--kubeadm="+pki)
	within(t, "handback", c.underTraffic(t, "during-handback", func() { t.Log(c.product(t, "kubeadm", "handback")) }), 1, usual)
	c.signs(t, held, "the handback", former[:2]...)
	c.checkHandedBack(t, before, "handed-back")
}

// signs returns the ID of the key that signs, once it is none of the former ones. All tokens since then have to be accepted.
func (c *cluster) signs(t *testing.T, held map[string]string, since string, former ...string) (key string) {
	t.Helper()
	poll(t, "a token of another key after "+since, func(ctx context.Context) error {
		answer, err := c.client.CoreV1().ServiceAccounts("default").CreateToken(ctx, "default", &authenticationv1.TokenRequest{},
			metav1.CreateOptions{})
		if err != nil {
			return err
		}
		token := testutil.Get(tokens.Inspect(answer.Status.Token))(t)
		for _, one := range former {
			if token.KeyID == one {
				return fmt.Errorf("key %s signs", one)
			}
		}
		key, held[since] = token.KeyID, answer.Status.Token
		return nil
	})
	for when, token := range held {
		review := testutil.Get(c.client.AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{
			Spec: authenticationv1.TokenReviewSpec{Token: token},
		}, metav1.CreateOptions{}))(t)
		testutil.Expect(t, review.Status.Authenticated, "after %s the token from after %s is refused: %s", since, when, review.Status.Error)
	}
	return key
}
