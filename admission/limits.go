// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/internal/connlimit"
)

const (
	// DefaultMaxInFlight is how many calls are decided at the same time unless configured.
	DefaultMaxInFlight = 400

	// otherConnections may be open beside as many as there may be calls to decide: new and idle
	// ones, and those whose calls are rejected. Each takes some 30 KiB. kube-apiserver dials as
	// often at once as it creates Pods, and keeps 25 idle ones.
	otherConnections = 128

	// freeBody is how much of each body is read whatever else goes on, in bytes. It is more
	// than most Pods need. With all that may arrive and be decided it is 20 MiB. Beyond it
	// a slow body can keep others out.
	freeBody = 16 << 10

	// sharedBody is how much of all bodies together may be held beyond that, in bytes: a
	// review of the greatest size always fits if it comes alone.
	sharedBody = maxBody

	// maxBody is the greatest review that is read, in bytes. The apiserver takes
	// objects of up to 3 MiB, and an update brings two of them.
	maxBody = 8 << 20

	// answerMargin is what the apiserver's timeout is cut by. It rounds what it writes
	// into the URL up to a whole second, and so gives up before the time it names
	// (k8s.io/apiserver pkg/admission/plugin/webhook/mutating/dispatcher.go). The other
	// half second is for the way back.
	answerMargin = 1500 * time.Millisecond

	// bodyTimeout bounds the arrival of a body. The apiserver sends it in one go.
	bodyTimeout = 10 * time.Second

	// rejectedTimeout is for what comes before the uid, of a body for which there is no
	// place: nothing else bounds how many of those are read.
	rejectedTimeout = time.Second

	// maxTimeout is the greatest timeout that a webhook can have. It bounds calls that
	// name none.
	maxTimeout = 30 * time.Second
)

func orDefault(maxInFlight int) int { return cmp.Or(max(maxInFlight, 0), DefaultMaxInFlight) }

// connectionLimits are those of a Server whose Webhook decides maxInFlight calls at the same time.
func connectionLimits(maxInFlight int) connlimit.Limits {
	return connlimit.Limits{Open: orDefault(maxInFlight) + otherConnections}
}

// semaphore bounds how many calls are in a stage.
type semaphore struct {
	taken chan struct{}
	count func(more float64)
}

func newSemaphore(limit int, count func(more float64)) semaphore {
	return semaphore{make(chan struct{}, limit), count}
}

// tryAcquire reports whether there was a place.
func (s semaphore) tryAcquire() bool {
	select {
	case s.taken <- struct{}{}:
		s.count(1)
		return true
	default:
		return false
	}
}

func (s semaphore) release() {
	<-s.taken
	s.count(-1)
}

// errTooMany rejects a call for which a semaphore has no place.
func errTooMany() error {
	return TooManyRequests("too many admission requests at the same time, please try again")
}

// errTooLarge rejects a body for which the bodyLimiter has no room: other large ones are being
// decided on.
var errTooLarge = errors.New("too many large admission requests at the same time, please try again")

// bodyLimiter bounds what all bodies together take. Without it, calls in flight times their
// greatest size would be gigabytes. The zero value is ready to use.
type bodyLimiter struct{ taken atomic.Int64 }

// limitedBody is a body that takes from the limiter what is read of it.
type limitedBody struct {
	from       io.Reader
	limiter    *bodyLimiter
	read, held int64
}

// Read implements io.Reader.
func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	b.read += int64(n)
	if more := b.read - freeBody - b.held; more > 0 {
		if b.limiter.taken.Add(more) > sharedBody {
			b.limiter.taken.Add(-more)
			return 0, errTooLarge
		}
		b.held += more
	}
	return n, err
}

// release gives back what was taken, once nobody holds the body any more.
func (b *limitedBody) release() { b.limiter.taken.Add(-b.held) }

// readBody reads the whole of a body that is boundedBody's. When that fails, the envelope
// is what its beginning says.
func readBody(rw http.ResponseWriter, bounded io.Reader) ([]byte, envelope, error) {
	body, err := readPieces(bounded)
	if err != nil {
		return nil, findEnvelope(bytes.NewReader(body)), readRefusal(err)
	}
	// The server goes on reading, to learn when the caller leaves. A deadline that is
	// still set would end the request's context.
	setReadDeadline(rw, time.Time{})
	return body, envelope{}, nil
}

// bodyPiece is how much of a body is read at a time, in bytes: most come in one.
const bodyPiece = 8 << 10

// readPieces reads all, or with an error some of the beginning. A buffer that doubles would
// leave behind as much again of each large body that is refused in the end.
func readPieces(from io.Reader) ([]byte, error) {
	var full [][]byte
	piece := make([]byte, 0, bodyPiece)
	for {
		if len(piece) == cap(piece) {
			full = append(full, piece)
			piece = make([]byte, 0, bodyPiece)
		}
		n, err := from.Read(piece[len(piece):cap(piece)])
		piece = piece[:len(piece)+n]
		switch {
		case errors.Is(err, io.EOF) && len(full) == 0:
			return piece, nil
		case errors.Is(err, io.EOF):
			return bytes.Join(append(full, piece), nil), nil
		case err != nil && len(full) > 0:
			return full[0], err
		case err != nil:
			return piece, err
		}
	}
}

// boundedBody is the body within its bounds of size and time.
func boundedBody(rw http.ResponseWriter, r *http.Request) io.Reader {
	setReadDeadline(rw, time.Now().Add(bodyTimeout))
	return http.MaxBytesReader(rw, r.Body, maxBody)
}

// setReadDeadline does what it can: a writer that is no connection has no deadlines,
// and one that is gone has none any more.
func setReadDeadline(rw http.ResponseWriter, at time.Time) {
	_ = http.NewResponseController(rw).SetReadDeadline(at)
}

func readRefusal(err error) error {
	if errors.Is(err, errTooLarge) {
		return TooManyRequests(err.Error())
	}
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return invalidReview(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge,
			"the AdmissionReview is larger than %d MiB", tooLarge.Limit>>20)
	}
	if network := net.Error(nil); errors.As(err, &network) && network.Timeout() {
		return invalidReview(http.StatusRequestTimeout, metav1.StatusReasonTimeout, "the AdmissionReview took too long to arrive")
	}
	return invalidReview(http.StatusBadRequest, metav1.StatusReasonBadRequest, "read the AdmissionReview: %v", err)
}

// withDeadline ends the request's context in time for the apiserver to hear the answer.
func withDeadline(r *http.Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.Context(), timeToDecide(r.URL.Query().Get("timeout")))
}

// timeToDecide is the timeout of the URL, such as "10s", less the margin. A quarter of
// it always remains: with one second there is no margin to have, and trying is better
// than not. What cannot be read counts as the greatest timeout.
func timeToDecide(parameter string) time.Duration {
	timeout, err := time.ParseDuration(parameter)
	if err != nil || timeout <= 0 || timeout > maxTimeout {
		timeout = maxTimeout
	}
	return max(timeout-answerMargin, timeout/4)
}
