// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"cmp"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/internal/connlimit"
)

const (
	// DefaultMaxInFlight is the default limit on calls that are decided at the same time: as many as
	// kube-apiserver has requests in flight by default (--max-requests-inflight, --max-mutating-requests-inflight).
	DefaultMaxInFlight = 600

	// otherConnections is added to two connections per call to get the limit on open connections: for new
	// ones, idle ones, and those whose calls are rejected. Each takes some 30 KiB. kube-apiserver has two
	// connections for each Pod that is created, one for each path.
	otherConnections = 128

	// maxBody is the maximum size of a review, in bytes. etcd stores an object of up to 1.5 MiB, JSON may
	// escape each byte with six (\u003c), and an update has two objects.
	maxBody = 19 << 20

	// maxText is the maximum size of what an answer repeats from its request, in bytes. A uid has 36, most
	// names 253.
	maxText = 1 << 10

	// maxName is the maximum size of a field's name, in bytes: the JSON library repeats it in errors, many times.
	maxName = 64 << 10

	// maxLength is the maximum number of elements of a list, and of fields of an object.
	maxLength = 10_000

	// maxParts is the maximum number of names, values and ends in the JSON of one object.
	maxParts = 400_000

	// maxNames is the maximum size of all names in the JSON of one object, in bytes: to find duplicates, the JSON
	// library keeps those of a map in a buffer that doubles. etcd stores 1.5 MiB.
	maxNames = 4 << 20

	// partCost is the memory that each of them takes, in bytes, besides its text, with room for lists to
	// grow: plugins decode only the fields that they need.
	partCost = 32

	// smallCall is the part of the cost of each call that does not count against largeCalls, in bytes: most
	// Pods are smaller, and large ones keep none of them out.
	smallCall = 32 << 10

	// largeCalls is the maximum cost of all calls together, in bytes, less smallCall of each. A call of the
	// maximum size always fits. Decoding copies the text once, so they take twice as much memory at most.
	largeCalls = 32 << 20

	// answerMargin is subtracted from the apiserver's timeout. It rounds the timeout in the URL up
	// to a whole second and so gives up earlier than the URL says (k8s.io/apiserver
	// pkg/admission/plugin/webhook/mutating/dispatcher.go). The other half second is for the way
	// back.
	answerMargin = 1500 * time.Millisecond

	// bodyTimeout limits how long a call may take to arrive, with its body, and largeTimeout a body
	// above smallCall. The apiserver sends it in one go.
	bodyTimeout  = 10 * time.Second
	largeTimeout = 2 * time.Second

	// maxTimeout is the maximum timeout of a webhook configuration. It bounds calls without a
	// timeout in the URL.
	maxTimeout = 30 * time.Second
)

func orDefault(maxInFlight int) int { return cmp.Or(max(maxInFlight, 0), DefaultMaxInFlight) }

// connectionLimits returns the limits of the server. With names of client certificates those that have shown one and
// made a call, which are kube-apiserver's, are never evicted; otherwise nothing tells them from a flood of calls.
func (c *ServerConfig) connectionLimits() connlimit.Limits {
	limits := connlimit.Limits{Open: 2*orDefault(c.MaxInFlight) + otherConnections, Evicted: c.Metrics.evicted.Inc}
	if len(c.ClientNames) > 0 {
		limits.Callers = limits.Open - otherConnections
	}
	return limits
}

// share is what a call holds of largeCalls.
type share struct {
	of   *semaphore.Weighted
	held int64
}

// grow takes what a call of that many bytes and parts costs, and does not wait for it.
func (s *share) grow(size int64, parts int) error {
	more := size + int64(parts)*partCost - smallCall - s.held
	if more <= 0 {
		return nil
	}
	if !s.of.TryAcquire(more) {
		return TooManyRequests("too many large admission requests at the same time, please try again")
	}
	s.held += more
	return nil
}

func (s *share) release() { s.of.Release(s.held) }

// errTooLarge rejects a call that would cost too much.
func errTooLarge(format string, args ...any) error {
	return invalidReview(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge, format, args...)
}

// read reads the body. On failure it returns what has arrived.
func read(rw http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.ContentLength > smallCall {
		setReadDeadline(rw, time.Now().Add(largeTimeout))
	}
	body := make([]byte, r.ContentLength)
	n, err := io.ReadFull(r.Body, body)
	if network := net.Error(nil); errors.As(err, &network) && network.Timeout() {
		return body[:n], invalidReview(http.StatusRequestTimeout, metav1.StatusReasonTimeout, "the AdmissionReview took too long to arrive")
	}
	if err != nil {
		return body[:n], invalidReview(http.StatusBadRequest, metav1.StatusReasonBadRequest, "read the AdmissionReview: %v", err)
	}
	// The server keeps reading, to notice when the caller disconnects. The remaining deadline,
	// bodyTimeout, would cancel the request's context.
	setReadDeadline(rw, time.Time{})
	return body, nil
}

// readEnvelope returns the envelope of a call that is rejected before its body is read, if it comes soon: no
// semaphore bounds how many of these are read.
func readEnvelope(rw http.ResponseWriter, r *http.Request) envelope {
	setReadDeadline(rw, time.Now().Add(time.Second))
	return findEnvelope(r.Body)
}

// setReadDeadline ignores errors: a writer that is no connection has no deadlines, and a closed one
// needs none.
func setReadDeadline(rw http.ResponseWriter, at time.Time) {
	_ = http.NewResponseController(rw).SetReadDeadline(at)
}

// timeToDecide returns the timeout in the URL, such as "10s", less answerMargin, but at least a
// quarter of it: of one second the margin would leave nothing. The apiserver needs the rest to receive the
// response. A missing or invalid timeout counts as maxTimeout.
func timeToDecide(parameter string) time.Duration {
	timeout, err := time.ParseDuration(parameter)
	if err != nil || timeout <= 0 || timeout > maxTimeout {
		timeout = maxTimeout
	}
	return max(timeout-answerMargin, timeout/4)
}
