// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sa-controller-manager/internal/testutil"
)

// client calls the webhook itself, as anybody can who reaches its port. It believes every
// certificate; change says what it shows.
func (m *manager) client(t *testing.T, change func(*tls.Config)) *http.Client {
	t.Helper()
	config := &tls.Config{InsecureSkipVerify: true}
	if change != nil {
		change(config)
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: timeout}
}

// reply is what came back.
type reply struct {
	code           int
	protocol, body string
}

// call asks with GET if there is no body, and with POST otherwise.
func (m *manager) call(ctx context.Context, client *http.Client, path string, body []byte) (reply, error) {
	method := http.MethodGet
	if len(body) > 0 {
		method = http.MethodPost
	}
	request, err := http.NewRequestWithContext(ctx, method, fmt.Sprintf("https://127.0.0.1:%d%s", m.port, path), bytes.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return reply{}, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	return reply{response.StatusCode, response.Proto, string(answer)}, err
}

// verifies calls the webhook as kube-apiserver does with that caBundle.
func (m *manager) verifies(ctx context.Context, t *testing.T, caBundle []byte) error {
	t.Helper()
	client := m.client(t, func(config *tls.Config) {
		config.InsecureSkipVerify, config.RootCAs = false, x509.NewCertPool()
		config.RootCAs.AppendCertsFromPEM(caBundle)
	})
	_, err := m.call(ctx, client, "/readyz", nil)
	return err
}

// review is the question about the creation of a Pod, as kube-apiserver asks it.
func review(t *testing.T, namespace string, pod *corev1.Pod, dryRun bool) []byte {
	t.Helper()
	raw, err := json.Marshal(pod)
	testutil.Must(t, err)
	question, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID:       types.UID("question"),
			Kind:      metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
			Resource:  metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
			Namespace: namespace, Operation: admissionv1.Create,
			Object: runtime.RawExtension{Raw: raw}, DryRun: &dryRun,
		},
	})
	testutil.Must(t, err)
	return question
}

// answer is what the webhook says to a question.
func (m *manager) answer(t *testing.T, path string, question []byte) *admissionv1.AdmissionResponse {
	t.Helper()
	got, err := m.call(t.Context(), m.client(t, nil), path, question)
	if err != nil {
		t.Fatalf("call %s: %v", path, err)
	}
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal([]byte(got.body), &review); err != nil || review.Response == nil {
		t.Fatalf("call %s: %v: %s", path, err, got.body)
	}
	return review.Response
}
