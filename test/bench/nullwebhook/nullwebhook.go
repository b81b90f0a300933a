// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nullwebhook is the least that an admission webhook can be: it answers that all
// is allowed, with a fixed patch if it is given one, and reads no more of a request than
// its UID. What it costs is the price of asking at all. It runs as a process of its own,
// as every webhook does.
package nullwebhook

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"
)

// Options say what it does.
type Options struct {
	Port int
	// CAFile is where its certificate goes, which is its own CA.
	CAFile string
	// PatchFile has the JSON patch for /mutate; without one nothing is changed.
	PatchFile string
	// CaptureFile is where the first request for /mutate goes.
	CaptureFile string
}

// Serve returns when the listener fails.
func Serve(ctx context.Context, o Options) error {
	certificate, err := selfSigned()
	if err != nil {
		return err
	}
	mutate := &handler{capture: o.CaptureFile}
	if o.PatchFile != "" {
		patch, err := os.ReadFile(o.PatchFile)
		if err != nil {
			return err
		}
		mutate.rest = `,"patchType":"JSONPatch","patch":"` + base64.StdEncoding.EncodeToString(patch) + `"`
	}
	mux := http.NewServeMux()
	mux.Handle("/mutate", mutate)
	mux.Handle("/validate", &handler{})
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	server := &http.Server{
		Handler: mux, Protocols: protocols, ReadHeaderTimeout: 10 * time.Second,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(o.Port)))
	if err != nil {
		return err
	}
	// Written last: who sees the file may call.
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]})
	if err := os.WriteFile(o.CAFile+".new", ca, 0o600); err != nil {
		return err
	}
	if err := os.Rename(o.CAFile+".new", o.CAFile); err != nil {
		return err
	}
	return server.ServeTLS(listener, "", "")
}

type handler struct {
	rest    string // of the answer, behind allowed
	capture string
	once    sync.Once
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	uid, err := uidOf(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if h.capture != "" {
		h.once.Do(func() { err = keep(h.capture, body) })
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":%q,"allowed":true%s}}`, uid, h.rest)
}

func keep(path string, body []byte) error {
	if err := os.WriteFile(path+".new", body, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// uidOf finds the request's UID without decoding: it is the first one in what
// kube-apiserver writes.
func uidOf(body []byte) ([]byte, error) {
	_, after, ok1 := bytes.Cut(body, []byte(`"request":{"uid":"`))
	uid, _, ok2 := bytes.Cut(after, []byte(`"`))
	if !ok1 || !ok2 {
		return nil, errors.New("not a review as kube-apiserver writes it")
	}
	return uid, nil
}

func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "null-webhook"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}
