// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package watchhealth

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"sa-controller-manager/internal/testutil"
)

// server answers watches with what a test writes.
type server struct {
	status int
	err    error
	pipe   *io.PipeReader
	// refusal is the body of an answer that is not OK.
	refusal string
}

func (s *server) RoundTrip(*http.Request) (*http.Response, error) {
	if s.err != nil {
		return nil, s.err
	}
	if s.status != http.StatusOK {
		return &http.Response{
			StatusCode: s.status, Status: http.StatusText(s.status), Body: io.NopCloser(strings.NewReader(s.refusal)),
		}, nil
	}
	return &http.Response{StatusCode: s.status, Body: s.pipe}, nil
}

const (
	streaming = "https://api/api/v1/secrets?watch=true&sendInitialEvents=true&fieldSelector=type%3Dx"
	plain     = "https://api/api/v1/secrets?watch=true"
	group     = "https://api/apis/rbac.authorization.k8s.io/v1/roles?watch=1&sendInitialEvents=true&labelSelector=a"
)

func TestSilence(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, url, method string
		status              int
		err                 error
		// speaks is when something is heard, ends is when the informer stops.
		speaks, ends, after time.Duration
		want                string
	}{
		"Young": {reason: "with etcd's defaults bookmarks begin late", url: streaming, after: 12 * time.Minute},
		"NeverSpoke": {
			reason: "it should have ended by itself",
			url:    streaming, after: 13 * time.Minute, want: "no data received from v1/secrets (type=x) for 13m0s",
		},
		"FirstList": {reason: "it says nothing about bookmarks", url: streaming, speaks: time.Second, after: 5 * time.Minute},
		"Bookmark":  {url: streaming, speaks: time.Minute, after: 4 * time.Minute},
		"Silent": {
			reason: "after one bookmark there is one each minute",
			url:    streaming, speaks: time.Minute, after: 4*time.Minute + time.Second,
			want: "no data received from v1/secrets (type=x) for 3m1s",
		},
		"Group": {
			url: group, speaks: time.Minute, after: 5 * time.Minute,
			want: "no data received from rbac.authorization.k8s.io/v1/roles (a) for 4m0s",
		},
		"NoWatchCache": {reason: "without bookmarks, silence is normal", url: plain, speaks: time.Minute, after: 11 * time.Minute},
		"NoWatchCacheSilent": {
			reason: "it should have ended by itself", url: plain, after: 13 * time.Minute,
			want: "no data received from v1/secrets for 13m0s",
		},
		"Stopped": {reason: "nobody relies on it any more", url: streaming, speaks: time.Minute, ends: time.Minute, after: time.Hour},
		"Refused": {url: streaming, status: http.StatusForbidden, after: time.Hour},
		"Failed":  {url: streaming, err: errors.New("no route"), after: time.Hour},
		"List":    {url: "https://api/api/v1/secrets", after: time.Hour},
		"NotGet":  {url: streaming, method: http.MethodPost, after: time.Hour},
	} {
		testutil.Bubble(t, name, func(t *testing.T) {
			reader, writer := io.Pipe()
			backend := &server{status: max(tc.status, http.StatusOK), err: tc.err, pipe: reader}
			tracker := New(clock.RealClock{}, Limit)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			request := httptest.NewRequestWithContext(ctx, max(tc.method, http.MethodGet), tc.url, http.NoBody)
			response, err := tracker.Wrap(backend).RoundTrip(request) //nolint:bodyclose // it is, if there is one
			if err == nil {
				defer response.Body.Close()
				go func() { _, _ = io.Copy(io.Discard, response.Body) }()
			}
			start := time.Now()
			if tc.speaks > 0 {
				<-time.After(tc.speaks)
				_, _ = writer.Write([]byte("bookmark"))
			}
			if tc.ends > 0 {
				<-time.After(tc.ends)
				cancel()
			}
			<-time.After(tc.after - time.Since(start))
			synctest.Wait()
			got := ""
			if err := tracker.Check(); err != nil {
				got = err.Error()
			}
			testutil.Check(t, tc.reason, tc.want, got)
			_ = writer.Close() // a pipe's never fails
		})
	}
}

// An informer that cannot connect again is blind, although no watch is open.
func TestWatchThatIsNotReplaced(t *testing.T) {
	t.Parallel()
	now := clocktesting.NewFakePassiveClock(time.Now())
	tracker := New(now, Limit)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	open := func() *http.Response {
		backend := &server{status: http.StatusOK, pipe: emptyBody()}
		return testutil.Get(tracker.Wrap(backend).RoundTrip(httptest.NewRequestWithContext(ctx, http.MethodGet, streaming, http.NoBody)))(t)
	}
	open().Body.Close()
	now.SetTime(now.Now().Add(13 * time.Minute))
	testutil.Expect(t, tracker.Check() != nil, "a watch that ended and was not replaced counts as healthy")
	open().Body.Close()
	testutil.CheckError(t, "with a new watch", "", tracker.Check())
}

func emptyBody() *io.PipeReader {
	reader, writer := io.Pipe()
	_ = writer.Close() // a pipe's never fails
	return reader
}

// TestFailures: client-go repeats a request that gets 429 without a word, and the reason is in its answer.
func TestFailures(t *testing.T) {
	t.Parallel()
	const list = "https://api/api/v1/secrets?resourceVersion=0&limit=500&fieldSelector=type%3Dx"
	const other = "https://api/api/v1/secrets?fieldSelector=type%3Dx"
	const status = `{"kind":"Status","apiVersion":"v1","message":"storage is (re)initializing: cannot decrypt","code":429}`
	for name, tc := range map[string]struct {
		reason, url, want string
		answers           []server
	}{
		"None": {url: streaming, answers: []server{{status: 200}}},
		"Refused": {
			url: streaming, answers: []server{{status: 429, refusal: status}},
			want: "kube-apiserver answered 429: storage is (re)initializing: cannot decrypt",
		},
		"NoStatus": {
			reason: "a proxy answers", url: streaming, answers: []server{{status: 502, refusal: "<html>"}},
			want: "kube-apiserver answered 502: Bad Gateway",
		},
		"NoAnswer": {url: streaming, answers: []server{{err: errors.New("no route")}}, want: "no route"},
		"List": {
			reason: "of an informer", url: list, answers: []server{{status: 403}}, want: "kube-apiserver answered 403: Forbidden",
		},
		"OthersList": {reason: "it is no watch that is missing", url: other, answers: []server{{status: 403}}},
		"Over":       {url: streaming, answers: []server{{status: 403}, {status: 200}}},
		"Newest":     {url: streaming, answers: []server{{status: 403}, {err: errors.New("no route")}}, want: "no route"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tracker := New(clock.RealClock{}, Limit)
			for _, backend := range tc.answers {
				backend.pipe = emptyBody()
				response, err := tracker.Wrap(&backend).RoundTrip(httptest.NewRequestWithContext(t.Context(), http.MethodGet, tc.url,
					http.NoBody))
				if err != nil {
					continue
				}
				body, _ := io.ReadAll(response.Body)
				response.Body.Close()
				testutil.Check(t, "what the caller reads", backend.refusal, string(body))
			}
			testutil.Check(t, tc.reason, tc.want, tracker.Failure("v1/secrets (type=x)"))
		})
	}
}
