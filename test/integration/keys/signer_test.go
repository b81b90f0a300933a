// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

// signerCluster is a control plane whose kube-apiserver has no key. The manager signs for it and is
// started first.
type signerCluster struct {
	*testcluster.ControlPlane

	manager *testcluster.Manager
}

// signerFlags returns the flags of a manager that signs for kube-apiserver.
func signerFlags(c *devcluster.Cluster, flags ...string) []string {
	return append([]string{
		"-v=10", "--token-secrets=manual",
		"--external-signer-socket=" + c.SignerSocket(),
		// The shortest interval that kube-apiserver accepts, so that a test need not wait.
		"--external-signer-refresh-hint=2s",
	}, flags...)
}

// startSigner starts a manager with flags that give it a key, and kube-apiserver on its socket.
func startSigner(t *testing.T, flags ...string) *signerCluster {
	t.Helper()
	binary := testcluster.Binary(t)
	c := &signerCluster{}
	var running *devcluster.Manager
	c.ControlPlane = testcluster.New(t, devcluster.Options{
		ExternalSigner: true,
		BeforeAPIServer: func(cluster *devcluster.Cluster) (err error) {
			running, err = binary.StartManager(cluster, signerFlags(cluster, flags...)...)
			return err
		},
	})
	c.manager = c.Adopt(t, running)
	c.manager.AwaitReady(t)
	c.manager.LogOffset = len(c.manager.Logs())
	return c
}

// request requests a token with the given lifetime.
func (c *signerCluster) request(ctx context.Context, account *corev1.ServiceAccount,
	lifetime time.Duration) (*authenticationv1.TokenRequest, error) {
	return c.API.CoreV1().ServiceAccounts(account.Namespace).CreateToken(ctx, account.Name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(lifetime.Seconds()))},
	}, metav1.CreateOptions{})
}

// requested returns a requested token.
func (c *signerCluster) requested(t *testing.T, account *corev1.ServiceAccount) string {
	t.Helper()
	answer, err := c.request(testcluster.Context(t), account, time.Hour)
	if err != nil {
		t.Fatalf("request a token: %v", err)
	}
	testcluster.Leaks.AddTokens([]string{answer.Status.Token})
	return answer.Status.Token
}

// publishedKeys returns the key IDs in kube-apiserver's JWKS.
func (c *signerCluster) publishedKeys(ctx context.Context) ([]string, error) {
	body, err := c.API.CoreV1().RESTClient().Get().AbsPath("/openid/v1/jwks").DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	var set struct {
		Keys []struct {
			ID string `json:"kid"`
		} `json:"keys"`
	}
	if err := json.Unmarshal(body, &set); err != nil {
		return nil, err
	}
	var ids []string
	for _, key := range set.Keys {
		ids = append(ids, key.ID)
	}
	return ids, nil
}

// TestExternalSigner runs kube-apiserver without any key of its own.
func TestExternalSigner(t *testing.T) {
	former, key := newKey(t, devcluster.RSA), testcluster.NewKeyFile(t, newKey(t, devcluster.RSA))
	c := startSigner(t, key.Flag(), "--external-signer-max-token-expiration=2h", "--service-account-key-file="+former)
	namespace := c.Namespace(t)
	account := c.CreateAccount(t, namespace, "signed")

	t.Run("a requested token is accepted", func(t *testing.T) {
		token := c.requested(t, account)
		header, _ := testcluster.DecodeToken(t, []byte(token))
		if header["typ"] != "JWT" || header["kid"] != testcluster.KeyIDOfPEM(t, testcluster.ReadFile(t, key.Path)) {
			t.Errorf("the token's header is %v", header)
		}
		reviewed, err := c.Review(testcluster.Context(t), token)
		if err != nil || !reviewed.Authenticated {
			t.Errorf("the token is refused: %v %s", err, reviewed.Error)
		}
	})
	t.Run("a legacy token is accepted", func(t *testing.T) {
		secret := c.IssueSignedBy(t, account, testcluster.KeyIDOfPEM(t, testcluster.ReadFile(t, key.Path)))
		c.ExpectComplete(t, secret, account)
		c.ExpectAccepted(t, secret, account)
	})
	t.Run("a token of a former key is accepted", func(t *testing.T) {
		ids, err := c.publishedKeys(testcluster.Context(t))
		want := []string{testcluster.KeyIDOfPEM(t, testcluster.ReadFile(t, key.Path)), testcluster.KeyIDOfPEM(t, testcluster.ReadFile(t, former))}
		if err != nil || !slices.Equal(ids, want) {
			t.Errorf("kube-apiserver publishes %v, %v, want %v", ids, err, want)
		}
	})
	t.Run("the lifetime is cut", func(t *testing.T) {
		answer, err := c.request(testcluster.Context(t), account, 24*time.Hour)
		testutil.Must(t, err)
		_, claims := testcluster.DecodeToken(t, []byte(answer.Status.Token))
		exp, iat := claims["exp"].(float64), claims["iat"].(float64)
		if exp-iat != (2 * time.Hour).Seconds() {
			t.Errorf("the token lives for %v s, want two hours", exp-iat)
		}
	})
	t.Run("ready says so", func(t *testing.T) {
		awaitReadyDetail(t, c.manager, "[+]external-signer ok: 2 keys on "+c.SignerSocket())
	})
}
