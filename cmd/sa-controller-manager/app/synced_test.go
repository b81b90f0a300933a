// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"sa-controller-manager/controllers/informers"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
)

// halfAPIServer lets all resources be listed and watched but one, accepts the signing key, and notes and refuses all writes.
type halfAPIServer struct {
	unlisted string

	mu     sync.Mutex
	writes map[string]bool
}

// The namespace shop lacks its account and its root CA, the account lone its token Secret, and the Secret of robot its token.
var listed = map[string][]string{
	"namespaces": {`{"metadata":{"name":"shop","resourceVersion":"1"},"status":{"phase":"Active"}}`},
	"serviceaccounts": {
		`{"metadata":{"namespace":"kube-system","name":"default","uid":"uid","resourceVersion":"1"}}`,
		`{"metadata":{"namespace":"shop","name":"lone","uid":"lone","resourceVersion":"1"}}`,
		`{"metadata":{"namespace":"shop","name":"robot","uid":"robot","resourceVersion":"1"},"secrets":[{"name":"robot-token-abcde"}]}`,
	},
	"secrets": {
		`{"metadata":{"namespace":"shop","name":"robot-token-abcde","uid":"secret","resourceVersion":"1","annotations":` +
			`{"kubernetes.io/service-account.name":"robot","kubernetes.io/service-account.uid":"robot"}},` +
			`"type":"kubernetes.io/service-account-token"}`,
	},
	"configmaps": nil,
}

var kinds = map[string]string{
	"namespaces": "Namespace", "serviceaccounts": "ServiceAccount", "secrets": "Secret", "configmaps": "ConfigMap",
}

func (s *halfAPIServer) RoundTrip(r *http.Request) (*http.Response, error) {
	resource := strings.TrimPrefix(r.URL.Path, "/api/v1/")
	watched := r.Method == http.MethodGet && kinds[resource] != ""
	switch {
	case watched && resource == s.unlisted:
		return status(http.StatusForbidden, "Forbidden", "no "+resource+" today")(r)
	case watched:
		return s.watch(r, resource), nil
	case r.URL.Path == "/version":
		return healthy(r)
	case r.Method == http.MethodGet:
		return status(http.StatusNotFound, "NotFound", "")(r)
	case strings.HasSuffix(r.URL.Path, "/tokenreviews"):
		return answer(http.StatusCreated, "application/json", accepted(r))(r)
	case !strings.Contains(r.URL.Path, "/events") && !strings.HasPrefix(r.URL.Path, "/apis/auth"):
		s.mu.Lock()
		defer s.mu.Unlock()
		s.writes[r.Method+" "+strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/")] = true
	}
	return status(http.StatusInternalServerError, "InternalError", "")(r)
}

func status(code int, reason, message string) roundTrip {
	return answer(code, "application/json",
		fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","reason":%q,"message":%q,"code":%d}`, reason, message, code))
}

// watch streams the first list as events, and then nothing.
func (*halfAPIServer) watch(r *http.Request, resource string) *http.Response {
	var stream strings.Builder
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		typed := func(object string) string { return `{"apiVersion":"v1","kind":"` + kinds[resource] + `",` + object[1:] }
		for _, object := range listed[resource] {
			fmt.Fprintf(&stream, `{"type":"ADDED","object":%s}`, typed(object))
		}
		fmt.Fprintf(&stream, `{"type":"BOOKMARK","object":%s}`,
			typed(`{"metadata":{"resourceVersion":"5","annotations":{"k8s.io/initial-events-end":"true"}}}`))
	}
	reader, writer := io.Pipe()
	go func() {
		_, _ = io.WriteString(writer, stream.String())
		<-r.Context().Done()
		_ = writer.Close() // a pipe's never fails
	}()
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: reader, Request: r}
}

// accepted is the review of a token that is good.
func accepted(r *http.Request) string {
	var review authenticationv1.TokenReview
	if json.NewDecoder(r.Body).Decode(&review) != nil {
		return ""
	}
	review.Status = authenticationv1.TokenReviewStatus{
		Authenticated: true, Audiences: review.Spec.Audiences,
		User: authenticationv1.UserInfo{Username: "system:serviceaccount:kube-system:default", UID: "uid"},
	}
	text, err := json.Marshal(review)
	if err != nil {
		return ""
	}
	return string(text)
}

// TestPartsStartWhenTheirInformersHaveSynced: what cannot be listed stops only those that need it, and those write nothing.
func TestPartsStartWhenTheirInformersHaveSynced(t *testing.T) {
	const (
		account = "POST shop/serviceaccounts"
		rootCA  = "POST shop/configmaps"
		own     = "POST shop/secrets" // in the mode auto
		fill    = "PATCH shop/secrets/robot-token-abcde"
	)
	caData, _, err := certutil.GenerateSelfSignedCertKey("ca", nil, nil)
	testutil.Must(t, err)
	for unlisted, tc := range map[string]struct {
		reason, caches string
		want           []string
	}{
		"": {want: []string{fill, rootCA, own, account}},
		"secrets": {
			reason: "a namespace needs none", want: []string{rootCA, account},
			caches: "v1/secrets (type=kubernetes.io/service-account-token)",
		},
		"configmaps":      {want: []string{fill, own, account}, caches: "v1/configmaps (metadata.name=kube-root-ca.crt)"},
		"serviceaccounts": {reason: "another replica may lead", want: []string{}, caches: "v1/serviceaccounts"},
		"namespaces":      {reason: "another replica may lead", want: []string{}, caches: "v1/namespaces"},
	} {
		testutil.Bubble(t, "Without/"+unlisted, func(t *testing.T) {
			server := &halfAPIServer{unlisted: unlisted, writes: map[string]bool{}}
			o := parse(t, "--webhook-port=0", "--secure-port=0", "--leader-elect=false", "--token-secrets=auto",
				"--service-account-issuer=https://issuer")
			m := testutil.Get(newManager(t.Context(), o, metrics.NewKubeRegistry(), Extras{
				OpenKeys: func(context.Context, Host) (signing.Store, error) {
					return keysInMemory{signing.KeyFileRing(testkeys.Parse(testkeys.P256()))}, nil
				},
			}))(t)
			testutil.Must(t, m.use(&rest.Config{Host: "https://apiserver", QPS: -1, Transport: server}))
			testutil.Must(t, m.wire(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: caData}}))
			stop := testutil.Start(t, m.Run)
			testutil.Pause(time.Minute)
			server.mu.Lock()
			got := []string{}
			for write := range server.writes {
				got = append(got, write)
			}
			server.mu.Unlock()
			slices.Sort(got)
			testutil.Check(t, tc.reason+"\nwrites", tc.want, got)
			wrong := ""
			if err := m.synced(m.informers); err != nil {
				wrong = err.Error()
			}
			want := ""
			if tc.caches != "" {
				want = "not listed yet: " + tc.caches + ": kube-apiserver answered 403: no " + unlisted + " today"
			}
			testutil.Check(t, "caches", want, wrong)
			stop()
			time.Sleep(time.Minute) // client-go sleeps between two tries
		})
	}
}

// TestLeadAwaitsTheInformersOfEachPart: also a part that has no handler, which would wait by itself, acts on no empty cache.
func TestLeadAwaitsTheInformersOfEachPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, err := kubernetes.NewForConfig(&rest.Config{Host: "https://apiserver", QPS: -1,
			Transport: &halfAPIServer{unlisted: "secrets"}})
		testutil.Must(t, err)
		all, diary := informers.New(client, 0), testutil.NewDiary()
		part := func(name string, phase Phase, ask func(*informers.Informers)) Part {
			view := all.View()
			ask(view)
			return Part{Name: name, Phase: phase, Informers: view, Run: func(ctx context.Context) error {
				diary.Write(name)
				<-ctx.Done()
				return nil
			}}
		}
		m := &Manager{parts: []Part{
			part("asks for accounts", Leading, func(i *informers.Informers) { i.Accounts() }),
			part("asks for Secrets", Leading, func(i *informers.Informers) { i.TokenSecrets() }),
			part("asks for both", Leading, func(i *informers.Informers) { i.Accounts(); i.TokenSecrets() }),
		}}
		ctx, cancel := context.WithCancel(t.Context())
		all.Start(ctx)
		testutil.Start(t, m.lead)
		time.Sleep(time.Minute)
		testutil.Check(t, "started", []string{"0s asks for accounts"}, diary.Lines())
		follower := part("asks for Secrets and follows", Connected, func(i *informers.Informers) { i.TokenSecrets() })
		soon, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		testutil.Must(t, follower.whenSynced(soon))
		testutil.Check(t, "started", []string{"0s asks for accounts"}, diary.Lines())
		cancel()
		all.Stop()
		time.Sleep(time.Minute) // client-go sleeps between two tries
	})
}

// roundTrip answers requests without a socket, which a synctest bubble could not wait for.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func answer(status int, contentType, body string) roundTrip {
	return func(r *http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode: status, Header: http.Header{"Content-Type": {contentType}}, Body: io.NopCloser(strings.NewReader(body)), Request: r,
		}, nil
	}
}

func fail(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") }

func hang(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

var healthy = answer(http.StatusOK, "application/json", `{"gitVersion":"v1.36.3"}`)

// contact is one call of awaitAPIServer, in a synctest bubble.
type contact struct {
	connected bool
	took      time.Duration
	log       []string
}

// try calls awaitAPIServer with an API server that gives one answer after the other and then repeats the
// last one.
func try(ctx context.Context, t *testing.T, answers ...roundTrip) contact {
	t.Helper()
	var c contact
	began := time.Now()
	transport := roundTrip(func(r *http.Request) (*http.Response, error) {
		next := answers[0]
		answers = answers[min(1, len(answers)-1):]
		return next(r)
	})
	client := testutil.Get(kubernetes.NewForConfig(&rest.Config{Host: "https://apiserver", QPS: -1, Transport: transport}))(t)
	logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(0)))
	c.connected = awaitAPIServer(klog.NewContext(ctx, logger), client)
	c.took = time.Since(began)
	for _, entry := range logger.GetSink().(ktesting.Underlier).GetBuffer().Data() {
		line := strings.TrimSpace(fmt.Sprintln(append([]any{entry.Message}, entry.ParameterKVList...)...))
		if entry.Err != nil {
			line += ": " + entry.Err.Error()
		}
		c.log = append(c.log, line)
	}
	return c
}

func TestAwaitAPIServer(t *testing.T) {
	t.Parallel()
	const connected = "Connected to kube-apiserver version v1.36.3"
	notYet := func(retryIn, reason string) string {
		return "Failed to connect to kube-apiserver retryIn " + retryIn + ": " + reason
	}
	failed := func(retryIn string) string {
		return notYet(retryIn, `Get "https://apiserver/version": connection refused`)
	}
	for name, tc := range map[string]struct {
		reason  string
		answers []roundTrip
		want    contact
	}{
		"AtOnce": {answers: []roundTrip{healthy}, want: contact{connected: true, log: []string{connected}}},
		"LateAPIServer": {
			reason: "one clear line for each try", answers: append(slices.Repeat([]roundTrip{fail}, 8), healthy),
			want: contact{connected: true, took: 13500 * time.Millisecond, log: []string{
				failed("500ms"), failed("1s"), failed("2s"), failed("2s"), failed("2s"), failed("2s"), failed("2s"), failed("2s"),
				connected,
			}},
		},
		"Hangs": {
			reason: "a connection that hangs is a line in the log too", answers: []roundTrip{hang, healthy},
			want: contact{connected: true, took: 5500 * time.Millisecond, log: []string{
				notYet("500ms", `Get "https://apiserver/version": context deadline exceeded`), connected,
			}},
		},
		"SomethingElse": {
			reason: "a proxy's error page is no API server", answers: []roundTrip{answer(http.StatusOK, "text/html", "<html>"), healthy},
			want: contact{connected: true, took: 500 * time.Millisecond, log: []string{
				notYet("500ms", "read /version: invalid character '<' looking for beginning of value"), connected,
			}},
		},
	} {
		testutil.Bubble(t, name, func(t *testing.T) {
			got := try(t.Context(), t, tc.answers...)
			testutil.Check(t, tc.reason+": contact", tc.want, got, cmp.AllowUnexported(contact{}))
		})
	}
}

func TestAwaitAPIServerEndsWithItsContext(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		answer roundTrip
		after  time.Duration
		lines  int
	}{
		"DuringBackOff":  {answer: fail, after: 20 * time.Second, lines: 12},
		"DuringARequest": {answer: hang, after: time.Second}, // a request that the end of ctx cuts short is not logged
	} {
		testutil.Bubble(t, name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), tc.after)
			defer cancel()
			got := try(ctx, t, tc.answer)
			testutil.Expect(t, !got.connected && got.took == tc.after, "connected is %v after %v, want false after %v", got.connected,
				got.took,
				tc.after)
			testutil.Expect(t, len(got.log) == tc.lines, "%d lines were logged, want %d:\n%s", len(got.log), tc.lines,
				strings.Join(got.log, "\n"))
		})
	}
}
