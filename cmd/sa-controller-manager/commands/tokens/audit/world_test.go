// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
	"sa-controller-manager/tokens"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// testKeys are an active and a retired key. A third one is nobody's.
func testKeys(tb testing.TB) Keys {
	tb.Helper()
	return Keys{
		{PublicKey: testkeys.Parse(testkeys.P256()).Public(), Role: signing.Active},
		{PublicKey: testkeys.Parse(testkeys.P384()).Public(), Role: signing.Retired},
	}
}

// tokenSecret is in order: of account robot in namespace shop, made ten days ago.
func tokenSecret(tb testing.TB, name string, key []byte, changes ...func(*corev1.Secret)) *corev1.Secret {
	tb.Helper()
	token, err := tokens.NewIssuer(testkeys.Parse(key), tokens.CompatClaims).
		Legacy(tb.Context(), tokens.Account{Namespace: "shop", Name: "robot", UID: "uid-robot"}, name)
	testutil.Must(tb, err)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, UID: types.UID("uid-" +
				name), CreationTimestamp: metav1.NewTime(now.AddDate(0, 0, -10)), Labels: map[string]string{},
			Annotations: map[string]string{corev1.ServiceAccountNameKey: "robot", corev1.ServiceAccountUIDKey: "uid-robot"},
		},
		Type: corev1.SecretTypeServiceAccountToken,
		Data: map[string][]byte{"token": []byte(token), "namespace": []byte("shop")},
	}
	for _, change := range changes {
		change(secret)
	}
	return secret
}

// server is a kube-apiserver of as much as is asked here. Its lists come in pages, in the order of
// etcd.
type server struct {
	namespaces int // each with one account and one Pod
	perSpace   int // token Secrets
	token      string
	late       int // the first request from there on comes too late, 0 for none

	mu       sync.Mutex
	requests map[string]int
	running  atomic.Int32
	most     atomic.Int32
}

func (s *server) start(tb testing.TB) kubernetes.Interface {
	tb.Helper()
	s.requests = map[string]int{}
	listener := httptest.NewServer(s)
	tb.Cleanup(listener.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: listener.URL, QPS: -1})
	testutil.Must(tb, err)
	return client
}

func (s *server) count(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests[what]++
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if n := s.running.Add(1); n > s.most.Load() {
		s.most.Store(n)
	}
	defer s.running.Add(-1)
	w.Header().Set("Content-Type", "application/json")
	parts := strings.Split(r.URL.Path, "/")
	kind := parts[len(parts)-1]
	s.count(kind)
	switch kind {
	case "secrets":
		s.secrets(w, r)
	case "serviceaccounts":
		s.answer(w, &corev1.ServiceAccountList{Items: []corev1.ServiceAccount{{
			ObjectMeta: metav1.ObjectMeta{Namespace: parts[4], Name: "robot", UID: "uid-robot"},
			Secrets:    []corev1.ObjectReference{{Name: "token-00000"}},
		}}})
	case "pods":
		s.answer(w, &corev1.PodList{Items: []corev1.Pod{{
			ObjectMeta: metav1.ObjectMeta{Namespace: parts[4], Name: "user"},
			Spec: corev1.PodSpec{
				Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "token-00000"}}}},
			},
		}}})
	case "subjectaccessreviews":
		var review authorizationv1.SubjectAccessReview
		_ = json.NewDecoder(r.Body).Decode(&review)
		s.answer(w, &review)
	default:
		http.NotFound(w, r)
	}
}

func (*server) answer(w http.ResponseWriter, object any) {
	if err := json.NewEncoder(w).Encode(object); err != nil {
		panic(http.ErrAbortHandler) // the client has gone
	}
}

func (s *server) secrets(w http.ResponseWriter, r *http.Request) {
	if selector := r.URL.Query().Get("fieldSelector"); selector != "type=kubernetes.io/service-account-token" {
		http.Error(w, "asked for other Secrets too: "+selector, http.StatusBadRequest)
		return
	}
	offset, _ := strconv.Atoi(r.URL.Query().Get("continue"))
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	if s.late > 0 && offset >= s.late {
		s.late = 0
		w.WriteHeader(http.StatusGone)
		s.answer(w, &metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: http.StatusGone,
			Reason: metav1.StatusReasonExpired, ListMeta: metav1.ListMeta{Continue: strconv.Itoa(offset)},
		})
		return
	}
	total := s.namespaces * s.perSpace
	// Rendered by hand: encoding them would take longer than all that is tested.
	fmt.Fprint(w, `{"kind":"SecretList","apiVersion":"v1","metadata":{`)
	if offset+limit < total {
		fmt.Fprintf(w, `"continue":"%d"`, offset+limit)
	}
	fmt.Fprint(w, `},"items":[`)
	data := fmt.Sprintf(`"token":%q,"ca.crt":%q`, base64.StdEncoding.EncodeToString([]byte(s.token)),
		base64.StdEncoding.EncodeToString(make([]byte, 1100)))
	for i := offset; i < min(offset+limit, total); i++ {
		if i > offset {
			fmt.Fprint(w, ",")
		}
		fmt.Fprintf(w, `{"type":"kubernetes.io/service-account-token","metadata":{"namespace":"ns-%05d","name":"token-%05d","uid":"%d",`+
			`"creationTimestamp":"2025-11-21T12:00:00Z","annotations":{"kubernetes.io/service-account.name":"robot",`+
			`"kubernetes.io/service-account.uid":"uid-robot"}},"data":{%s}}`,
			i/s.perSpace, i%s.perSpace, i, data)
	}
	fmt.Fprint(w, `]}`)
}
