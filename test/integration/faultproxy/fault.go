// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// errDropped means that the client gets no answer.
var errDropped = errors.New("the answer is dropped")

// Fault answers a request. forward passes it on to kube-apiserver; a fault calls
// it once at most. An error means that the client gets no answer.
type Fault func(request *http.Request, forward http.RoundTripper) (*http.Response, error)

// Rule says which requests get which fault. It is used in one proxy at a time.
type Rule struct {
	Match Match
	// Times is how often a target gets the fault; 0 means always. Requests with the
	// same verb on the same object have the same target, and so do all creations in
	// one namespace and resource.
	Times int
	Fault Fault

	mu   sync.Mutex
	hits map[string]int
}

// applies reports whether the rule is for this request and counts it if so.
func (r *Rule) applies(request Request) bool {
	if !r.Match(request) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hits == nil {
		r.hits = map[string]int{}
	}
	if r.Times > 0 && r.hits[request.target()] >= r.Times {
		return false
	}
	r.hits[request.target()]++
	return true
}

// Hits is how many requests the rule was applied to.
func (r *Rule) Hits() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	sum := 0
	for _, hits := range r.hits {
		sum += hits
	}
	return sum
}

// Forward passes the request on, which is what happens without a rule. It is the
// end of faults that only delay.
func Forward(request *http.Request, forward http.RoundTripper) (*http.Response, error) {
	return forward.RoundTrip(request)
}

// Answer refuses the request with a Status of that code and reason; kube-apiserver
// never sees it.
func Answer(code int, reason metav1.StatusReason) Fault {
	return func(request *http.Request, _ http.RoundTripper) (*http.Response, error) {
		return status(request, code, reason), nil
	}
}

// TooManyRequests answers 429 with a Retry-After of the given time, rounded to seconds, as
// kube-apiserver's priority and fairness does.
func TooManyRequests(retryAfter time.Duration) Fault {
	return func(request *http.Request, _ http.RoundTripper) (*http.Response, error) {
		response := status(request, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)
		response.Header.Set("Retry-After", strconv.Itoa(int(retryAfter.Round(time.Second)/time.Second)))
		return response, nil
	}
}

// DropAnswer lets kube-apiserver execute the request and closes the client's connection without an
// answer.
func DropAnswer(request *http.Request, forward http.RoundTripper) (*http.Response, error) {
	if err := commit(request, forward); err != nil {
		return nil, err
	}
	return nil, errDropped
}

// TimeOutAfterCommit lets kube-apiserver execute the request and answers with a timeout, as
// kube-apiserver does when etcd is slow.
func TimeOutAfterCommit(request *http.Request, forward http.RoundTripper) (*http.Response, error) {
	if err := commit(request, forward); err != nil {
		return nil, err
	}
	return status(request, http.StatusGatewayTimeout, metav1.StatusReasonTimeout), nil
}

// commit passes the request on and reads the answer to its end.
func commit(request *http.Request, forward http.RoundTripper) error {
	response, err := forward.RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return fmt.Errorf("read an answer: %w", err)
	}
	return nil
}

// Hold keeps the request until the channel is closed, and then goes on with next.
// A client that gives up meanwhile is not waited for.
func Hold(until <-chan struct{}, next Fault) Fault {
	return func(request *http.Request, forward http.RoundTripper) (*http.Response, error) {
		select {
		case <-until:
			return next(request, forward)
		case <-request.Context().Done():
			return nil, request.Context().Err()
		}
	}
}

// After does something before the request is passed on.
func After(do func(Request) error) Fault {
	return func(request *http.Request, forward http.RoundTripper) (*http.Response, error) {
		if err := do(readRequest(request)); err != nil {
			return nil, err
		}
		return forward.RoundTrip(request)
	}
}

// status renders an answer as kube-apiserver would for a client that takes JSON.
func status(request *http.Request, code int, reason metav1.StatusReason) *http.Response {
	body := fmt.Sprintf(`{"apiVersion":"v1","kind":"Status","status":"Failure","code":%d,"reason":%q,"message":"injected fault"}`,
		code, reason)
	return &http.Response{
		StatusCode:    code,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        http.Header{"Content-Type": {"application/json"}},
		Body:          io.NopCloser(strings.NewReader(body)),
		ContentLength: int64(len(body)),
		Request:       request,
	}
}
