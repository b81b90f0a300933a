// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/devcluster"
)

// TestOnlyKubeAPIServerMayCall has the webhook ask for a client certificate. Strangers
// learn nothing, not even whether what they ask for exists.
func TestOnlyKubeAPIServerMayCall(t *testing.T) {
	c := controlPlane(t)
	m := c.manage(t, "--webhook-client-ca-file="+shared.caller.caFile(), "--webhook-client-allowed-names=kube-apiserver")
	namespace := c.namespace(t)
	complete(t, c.create(t, namespace, newPod()), "default")
	c.refuse(t, namespace, newPod(of("nobody")), `serviceaccount "nobody" not found`)

	stranger := m.client(t, nil)
	if got, err := m.call(t.Context(), stranger, "/readyz", nil); err != nil || got.code != http.StatusOK {
		t.Errorf("readyz without a certificate: got %+v, %v; want 200", got, err)
	}
	kubelet := m.client(t, func(config *tls.Config) { config.Certificates = []tls.Certificate{shared.caller.kubelet} })
	for name, client := range map[string]*http.Client{"no certificate": stranger, "the same CA, another name": kubelet} {
		var said []string
		for _, path := range []string{"/mutate?timeout=10s", "/validate?timeout=10s", "/nothing"} {
			for _, account := range []string{"default", "nobody"} {
				got, err := m.call(t.Context(), client, path, review(t, namespace, newPod(of(account)), false))
				if err != nil || got.code != http.StatusUnauthorized {
					t.Errorf("%s: %s about account %s: got %+v, %v; want 401", name, path, account, got, err)
				}
				said = append(said, got.body)
			}
		}
		for _, body := range said {
			if body != said[0] || strings.Contains(body, namespace) {
				t.Errorf("%s: the answers tell strangers something: %q", name, said)
			}
		}
	}
}

// TestStrangersCertificate shows a certificate of another CA, with the right name. The handshake
// fails, which is counted.
func TestStrangersCertificate(t *testing.T) {
	c := controlPlane(t)
	m := c.start(t, "--webhook-registration=none", "--webhook-client-ca-file="+shared.caller.caFile())
	m.awaitReady(t)
	ca, err := devcluster.NewAuthority("another CA")
	testutil.Must(t, err)
	certificate, key, err := ca.Client("kube-apiserver")
	testutil.Must(t, err)
	pair, err := tls.X509KeyPair(certificate, key)
	testutil.Must(t, err)
	theirs := m.client(t, func(config *tls.Config) {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	})
	if got, err := m.call(t.Context(), theirs, "/readyz", nil); err == nil {
		t.Errorf("got %+v, want no connection", got)
	}
	// The caller learns of the failed handshake before the webhook has counted it.
	poll(t, "await that the failed handshake is counted", func(context.Context) error {
		if got := m.metric(t, "sacm_webhook_tls_handshake_errors_total", devcluster.Labels{"reason": "client_certificate"}); got != 1 {
			return fmt.Errorf("%v are counted, want 1", got)
		}
		return nil
	})
}
