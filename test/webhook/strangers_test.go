// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"crypto/tls"
	"net/http"
	"strings"
	"testing"
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
