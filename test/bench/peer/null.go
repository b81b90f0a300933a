// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	certutil "k8s.io/client-go/util/cert"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/bench/world"
	"sa-controller-manager/test/devcluster"
)

// NullWebhook is the first argument that makes the command a null webhook: the least that an admission webhook can be.
// It allows all, with a fixed patch, and reads no more of a request than its UID. What it costs is the price of asking at
// all. It is a process of its own, as every webhook is.
const NullWebhook = "null-webhook"

// patch is what ours answers for world.Pod.
const patch = `[{"op":"add","path":"/spec/serviceAccountName","value":"default"},` +
	`{"op":"add","path":"/spec/volumes/-","value":{"name":"kube-api-access-null0","projected":{"defaultMode":420,"sources":[` +
	`{"serviceAccountToken":{"expirationSeconds":3607,"path":"token"}},` +
	`{"configMap":{"name":"kube-root-ca.crt","items":[{"key":"ca.crt","path":"ca.crt"}]}},` +
	`{"downwardAPI":{"items":[{"path":"namespace","fieldRef":{"apiVersion":"v1","fieldPath":"metadata.namespace"}}]}}]}}},` +
	`{"op":"add","path":"/spec/containers/0/volumeMounts/-","value":` + mount + `},` +
	`{"op":"add","path":"/spec/containers/1/volumeMounts/-","value":` + mount + `}]`

const mount = `{"name":"kube-api-access-null0","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}`

// nullWebhook starts this executable as a webhook, and registers it as ours is.
func nullWebhook(ctx context.Context, w *world.World, namespace string) (stop func(), err error) {
	ca := filepath.Join(w.Dir(), "null-webhook.crt")
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	port, err := devcluster.FreePort()
	if err != nil {
		return nil, err
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	child, err := devcluster.StartChild(NullWebhook, self, w.Dir(), []string{NullWebhook, address, ca})
	if err != nil {
		return nil, err
	}
	stop = func() { _, _ = child.Kill() }
	var bundle []byte
	if err := await.Poll(ctx, func(context.Context) error {
		bundle, err = os.ReadFile(ca)
		return err
	}); err != nil {
		stop()
		return nil, fmt.Errorf("await the null webhook: %w: %s", err, child.LogTail(5))
	}
	return stop, w.CopyRegistration(ctx, namespace, address, bundle)
}

// ServeNull serves until it fails.
func ServeNull(ctx context.Context, address, caFile string) error {
	certificate, key, err := certutil.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return err
	}
	answer := func(more string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			// It is the first one in what kube-apiserver writes.
			_, after, _ := bytes.Cut(body, []byte(`"request":{"uid":"`))
			uid, _, _ := bytes.Cut(after, []byte(`"`))
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":%q,"allowed":true%s}}`, uid, more)
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/mutate", answer(`,"patchType":"JSONPatch","patch":"`+base64.StdEncoding.EncodeToString([]byte(patch))+`"`))
	mux.HandleFunc("/validate", answer(""))
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	server := &http.Server{
		Handler: mux, Protocols: protocols, ReadHeaderTimeout: 10 * time.Second,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	// Written last: a client that sees the file may call.
	if err := os.WriteFile(caFile+".new", certificate, 0o600); err != nil {
		return err
	}
	if err := os.Rename(caFile+".new", caFile); err != nil {
		return err
	}
	return server.ServeTLS(listener, "", "")
}
