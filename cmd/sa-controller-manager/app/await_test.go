// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"sa-controller-manager/internal/testutil"
)

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

// try calls awaitAPIServer with an API server that gives the answers in turn and then repeats the
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
				failed("500ms"), failed("1s"), failed("2s"), failed("2s"), failed("2s"), failed("2s"), failed("2s"), failed("2s"), connected,
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
			if got.connected || got.took != tc.after {
				t.Errorf("connected is %v after %v, want false after %v", got.connected, got.took, tc.after)
			}
			if len(got.log) != tc.lines {
				t.Errorf("%d lines were logged, want %d:\n%s", len(got.log), tc.lines, strings.Join(got.log, "\n"))
			}
		})
	}
}
