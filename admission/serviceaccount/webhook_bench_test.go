// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount_test

import (
	"bytes"
	_ "embed"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"

	"sa-controller-manager/admission"
	"sa-controller-manager/admission/registration"
	"sa-controller-manager/admission/serviceaccount"
	"sa-controller-manager/internal/testutil"
)

// review is what kube-apiserver v1.36.3 sends for a Pod of two containers.
//
//go:embed testdata/review/create.json
var review []byte

// BenchmarkMutate is the webhook without a network.
func BenchmarkMutate(b *testing.B) {
	webhook := newWebhook(b)
	body, answer := bytes.NewReader(review), connection{httptest.NewRecorder()}
	request := httptest.NewRequest(http.MethodPost, "http://webhook/mutate?timeout=10s", body)
	request.Header.Set("Content-Type", "application/json")
	b.ReportAllocs()
	b.SetBytes(int64(len(review)))
	for b.Loop() {
		body.Reset(review)
		answer.Body.Reset()
		webhook.ServeHTTP(answer, request)
		testutil.Require(b, bytes.Contains(answer.Body.Bytes(), []byte(`"patchType"`)), "no patch: %s", answer.Body)
	}
}

// connection has deadlines, as a real one has.
type connection struct{ *httptest.ResponseRecorder }

// SetReadDeadline is found by http.ResponseController.
func (connection) SetReadDeadline(time.Time) error { return nil }

func newWebhook(b testing.TB) *admission.Webhook {
	b.Helper()
	return newWebhookOf(b, serviceaccount.DefaultConfig())
}

func newWebhookOf(b testing.TB, config serviceaccount.Config) *admission.Webhook {
	b.Helper()
	accounts := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	testutil.Must(b, accounts.Add(&corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "default", UID: "1"},
		Secrets:    []corev1.ObjectReference{{Name: "token"}},
	}))
	plugin := serviceaccount.New(config, serviceaccount.Dependencies{
		Accounts:    corev1listers.NewServiceAccountLister(accounts),
		Client:      fake.NewClientset().CoreV1(),
		UsableToken: func(*corev1.ServiceAccount, string) bool { return true },
		Waiters:     serviceaccount.NewWaiters(1, nil),
		Suffix:      func() string { return "abcde" },
	})
	return admission.NewWebhook(admission.WebhookConfig{
		Plugin: plugin, Probe: new(registration.ProbeResponder).Probe,
		Metrics: admission.NewMetrics(metrics.NewKubeRegistry().MustRegister),
	})
}
