// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

// slowWebhook is an authentication webhook that refuses every token after a second. kube-apiserver asks
// it about tokens that it refuses itself, so only a refusal is slow.
func slowWebhook(t *testing.T) (flags map[string][]string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(time.Second):
		case <-r.Context().Done():
			return
		}
		var review authenticationv1.TokenReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Status = authenticationv1.TokenReviewStatus{Error: "unknown token"}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(server.Close)
	config := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: it\n"+
		"clusters: [{name: it, cluster: {server: %q}}]\ncontexts: [{name: it, context: {cluster: it}}]\n", server.URL)
	return map[string][]string{
		"authentication-token-webhook-config-file": {testcluster.WriteFile(t, "webhook.kubeconfig", []byte(config))},
		"authentication-token-webhook-version":     {"v1"},
	}
}

// TestKeyIsRefusedLater exchanges kube-apiserver's keys under a running manager, whose key it had
// accepted, and starts another manager after that. A token that kube-apiserver refuses would stay in its
// Secret.
func TestKeyIsRefusedLater(t *testing.T) {
	t.Parallel()
	c := testcluster.New(t, devcluster.Options{APIServerFlags: slowWebhook(t)})
	namespace := c.Namespace(t)
	account := c.CreateAccount(t, namespace, "someone")
	own := c.SigningKeyFile()
	id := testcluster.KeyIDOfPEM(t, testcluster.ReadFile(t, own))
	m := c.Manage(t, "--token-secrets=manual")
	m.ExpectErrors = true // kube-apiserver is away for a while
	m.AwaitProbe(t, "accepted")
	before := c.CreateSecret(t, testcluster.TokenSecret(namespace, "before", account.Name))
	c.ExpectAccepted(t, c.AwaitFilled(t, namespace, before.Name), account)

	c.SetAPIServerFlag("service-account-key-file", newKey(t, devcluster.RSA))
	testutil.Must(t, errors.Join(c.KillAPIServer(), c.StartAPIServer(t.Context())))
	exchanged := time.Now()
	m.AwaitMetric(t, "sacm_signing_key_blocked", nil, 1)
	awaitReadyDetail(t, m, id+" signs", "not confirmed by kube-apiserver: kube-apiserver refuses its tokens")
	if took := time.Since(exchanged); took > time.Minute {
		t.Errorf("the refusal was noticed after %v, want a minute at most", took)
	}
	c.AwaitWarning(t, testcluster.AboutProcess("SigningKeyRefused"), id)
	c.CreateSecret(t, testcluster.TokenSecret(namespace, "after", account.Name))
	m.ExpectLog(t, "kube-apiserver refuses tokens of key "+id)

	m.Shutdown(t)
	const waiting = 20
	for i := range waiting {
		c.CreateSecret(t, testcluster.TokenSecret(namespace, fmt.Sprintf("waits-%d", i), account.Name))
	}
	next := c.Manage(t, "--token-secrets=manual")
	next.ExpectErrors = true
	next.ExpectLog(t, "kube-apiserver refuses tokens of key "+id)
	for _, secret := range c.AwaitSecrets(t, namespace, func([]*corev1.Secret) error { return nil }) {
		if secret.Name != before.Name && testcluster.HasToken(secret) == nil {
			t.Errorf("%s was filled with a key that kube-apiserver refuses", secret.Name)
		}
	}

	c.SetAPIServerFlag("service-account-key-file", own)
	testutil.Must(t, errors.Join(c.KillAPIServer(), c.StartAPIServer(t.Context())))
	c.ExpectAccepted(t, c.AwaitFilled(t, namespace, "after"), account)
	c.ExpectAccepted(t, c.AwaitFilled(t, namespace, fmt.Sprintf("waits-%d", waiting-1)), account)
}
