// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/signing"
	"sa-controller-manager/tokens"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
)

const issuer = "https://kubernetes.default.svc.cluster.local"

// The way there and back with --external-signer. kube-apiserver has verified with a second
// key, of which only the public half is left; a token of it is good all the while.
func TestExternalSigner(t *testing.T) {
	await.Long(t)
	t.Parallel()
	var former *signing.PrivateKey
	n := newNode(t, func(n *node) { former = n.addFormerKey(t) })
	before := string(n.read(t, manifestOf("kube-apiserver")))
	awaitDefaultAccount(t, n, "default")
	account := n.defaultAccount(t)
	asked := n.request(t)
	tokensOfOld := map[string]string{
		"kube-apiserver's own": asked,
		"of the former key":    sign(t, former, account),
	}
	n.allAccepted(t, "before", tokensOfOld)

	n.must(t, append([]string{"takeover", "--external-signer"}, n.podFlags()...)...)
	after := string(n.read(t, manifestOf("kube-apiserver")))
	for _, gone := range []string{"--service-account-key-file", "--service-account-signing-key-file"} {
		if strings.Contains(after, gone) {
			t.Errorf("%s is still in kube-apiserver's manifest:\n%s", gone, after)
		}
	}
	if !strings.Contains(after, "    - --service-account-signing-endpoint=/run/sa-controller-manager/signer.sock\n") {
		t.Errorf("kube-apiserver has no signer:\n%s", after)
	}
	n.allAccepted(t, "with the signer", tokensOfOld)
	token := n.request(t)
	segment, _, _ := strings.Cut(token, ".")
	if header, err := base64.RawURLEncoding.DecodeString(segment); err != nil || !bytes.Contains(header, []byte(`"typ":"JWT"`)) {
		t.Errorf("the header of a requested token is %s, which a signer did not make: %v", header, err)
	}
	tokensOfOld["of the signer"] = token
	n.allAccepted(t, "with the signer", tokensOfOld)

	// Both start at the same time, and each is all that the other could wait for.
	begun := time.Now()
	n.kubelet.reboot()
	poll(t, "kube-apiserver is back", func(ctx context.Context) error {
		_, err := n.client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err
	})
	t.Logf("the node was back after %s", time.Since(begun).Round(time.Second))
	n.allAccepted(t, "after a reboot", tokensOfOld)

	code, again, _ := n.kubeadm(t, "takeover")
	if code != 0 || strings.Contains(again, "+++") {
		t.Errorf("a second takeover: exit code %d\n%s", code, again)
	}
	n.must(t, "handback")
	if diff := cmp.Diff(before, string(n.read(t, manifestOf("kube-apiserver")))); diff != "" {
		t.Errorf("the manifest of kube-apiserver is not what it was (-before +after):\n%s", diff)
	}
	n.allAccepted(t, "after the handback", tokensOfOld)
	weAreGone(t, n)
}

// addFormerKey has kube-apiserver verify with one more key, as after a rotation by hand.
func (n *node) addFormerKey(t *testing.T) *signing.PrivateKey {
	t.Helper()
	const private, public = "/former.key", "/etc/kubernetes/pki/former.pub"
	if err := devcluster.WriteSigningKey(n.path(private), devcluster.ECDSA); err != nil {
		t.Fatal(err)
	}
	n.write(t, public, publicKey(t, n.read(t, private)))
	const line = "    - --service-account-key-file=/etc/kubernetes/pki/sa.pub\n"
	manifest := n.read(t, manifestOf("kube-apiserver"))
	if !bytes.Contains(manifest, []byte(line)) {
		t.Fatalf("kube-apiserver's manifest has no line %s", line)
	}
	added := line + "    - --service-account-key-file=" + public + "\n"
	n.write(t, manifestOf("kube-apiserver"), bytes.Replace(manifest, []byte(line), []byte(added), 1))
	key, err := signing.ParsePrivateKey(n.read(t, private))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// sign makes a bound token the way that kube-apiserver does.
func sign(t *testing.T, key *signing.PrivateKey, account *corev1.ServiceAccount) string {
	t.Helper()
	token, err := tokens.NewIssuer(key, tokens.CompatClaims).Bound(t.Context(), tokens.BoundRequest{
		Issuer: issuer, Audiences: []string{issuer}, Lifetime: time.Hour,
		Account: tokens.Account{Namespace: account.Namespace, Name: account.Name, UID: string(account.UID)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func (n *node) defaultAccount(t *testing.T) *corev1.ServiceAccount {
	t.Helper()
	account, err := n.client.CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return account
}

// request is a token of the default account.
func (n *node) request(t *testing.T) string {
	t.Helper()
	answer, err := n.client.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("request a token: %v", err)
	}
	return answer.Status.Token
}

// allAccepted asks until kube-apiserver has answered; it may be on its way out or in.
func (n *node) allAccepted(t *testing.T, when string, all map[string]string) {
	t.Helper()
	n.reviewed(t, when, all, true)
}

// reviewed asks until kube-apiserver accepts all tokens, or refuses them.
func (n *node) reviewed(t *testing.T, when string, all map[string]string, accepted bool) {
	t.Helper()
	for whose, token := range all {
		poll(t, when+", the token "+whose, func(ctx context.Context) error {
			review, err := n.client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
				Spec: authenticationv1.TokenReviewSpec{Token: token},
			}, metav1.CreateOptions{})
			if err == nil && review.Status.Authenticated != accepted {
				err = fmt.Errorf("it is accepted: %t, want %t: %s", !accepted, accepted, review.Status.Error)
			}
			return err
		})
	}
}
