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
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/internal/connlimit"
)

const (
	// DefaultMaxInFlight is the default limit on calls that are decided at the same time.
	DefaultMaxInFlight = 400

	// otherConnections is added to the limit on calls to get the limit on open connections: for new
	// and idle connections, and for those whose calls are rejected. Each takes some 30 KiB.
	// kube-apiserver opens as many as it creates Pods at once, and keeps 25 idle ones.
	otherConnections = 128

	// freeBody is the part of each body that does not count against sharedBody, in bytes. Most Pods
	// are smaller. Over all calls that may arrive and be decided it is 20 MiB.
	freeBody = 16 << 10

	// sharedBody limits the sum of all bodies beyond freeBody, in bytes: one review of the maximum
	// size always fits.
	sharedBody = maxBody

	// maxBody is the maximum size of a review, in bytes. The apiserver accepts objects of up to 3
	// MiB, and an update has two of them.
	maxBody = 8 << 20

	// answerMargin is subtracted from the apiserver's timeout. It rounds the timeout in the URL up
	// to a whole second and so gives up earlier than the URL says (k8s.io/apiserver
	// pkg/admission/plugin/webhook/mutating/dispatcher.go). The other half second is for the way
	// back.
	answerMargin = 1500 * time.Millisecond

	// bodyTimeout limits how long a call may take to arrive, with its body. The apiserver sends it in
	// one go.
	bodyTimeout = 10 * time.Second

	// sharedTimeout limits how long a body may take for what is beyond freeBody.
	sharedTimeout = 2 * time.Second

	// sharedGrace is longer than a body takes that is sent in one go. Until then only its size counts
	// against it, so that clients that come again at once do not push out a smaller one.
	sharedGrace = 200 * time.Millisecond

	// rejectedTimeout limits how long the uid of a rejected review may take to arrive: no semaphore
	// bounds how many of these are read.
	rejectedTimeout = time.Second

	// maxTimeout is the maximum timeout of a webhook configuration. It bounds calls without a
	// timeout in the URL.
	maxTimeout = 30 * time.Second
)

func orDefault(maxInFlight int) int { return cmp.Or(max(maxInFlight, 0), DefaultMaxInFlight) }

// connectionLimits returns the limits of a Server whose Webhook decides maxInFlight calls at the
// same time.
func connectionLimits(maxInFlight int) connlimit.Limits {
	return connlimit.Limits{Open: orDefault(maxInFlight) + otherConnections}
}

// semaphore limits how many calls are in a stage.
type semaphore struct {
	taken chan struct{}
	count func(more float64)
}

func newSemaphore(limit int, count func(more float64)) semaphore {
	return semaphore{make(chan struct{}, limit), count}
}

// tryAcquire takes a place and reports whether there was one.
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

// errTooMany rejects a call when a semaphore is full.
func errTooMany() error {
	return TooManyRequests("too many admission requests at the same time, please try again")
}

// errTooLarge rejects a body that is cut when the bodyLimiter is full.
var errTooLarge = errors.New("too many large admission requests at the same time, please try again")

// bodyLimiter limits the memory of all bodies together, which could otherwise reach gigabytes. When
// it is full, it cuts a body that arrives, and not always the latest: a client that sends slowly, or
// not to the end, keeps nobody out. The zero value is ready to use.
type bodyLimiter struct {
	mu    sync.Mutex
	taken int64
	// arriving are the incomplete bodies that hold a share, those that have held it longest first.
	arriving []*limitedBody
}

// limitedBody counts what is read of a body against the limiter.
type limitedBody struct {
	from    io.Reader
	limiter *bodyLimiter
	// setDeadline sets the time at which reads from the connection fail.
	setDeadline func(time.Time)
	read        int64

	// The limiter's mu guards the fields below.

	held  int64
	since time.Time // of the first share
	cut   bool
}

// Read implements io.Reader.
func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	b.read += int64(n)
	if err == nil && b.read <= freeBody {
		return n, nil
	}
	b.limiter.mu.Lock()
	defer b.limiter.mu.Unlock()
	b.limiter.take(b, max(b.read-freeBody-b.held, 0))
	if b.cut {
		return 0, errTooLarge
	}
	if err != nil {
		b.arrived()
	}
	return n, err
}

// take gives a body more of the share, and cuts others, or this one, until that fits. The caller
// holds mu.
func (l *bodyLimiter) take(b *limitedBody, more int64) {
	if b.cut || more == 0 {
		return
	}
	if b.held == 0 {
		b.since = time.Now()
		b.setDeadline(b.since.Add(sharedTimeout))
		l.arriving = append(l.arriving, b)
	}
	b.held += more
	for l.taken += more; l.taken > sharedBody; {
		l.surplus().cutOff()
	}
}

// surplus returns the arriving body to cut: that which has held its share longest, or the largest
// while none has held one for long. The caller holds mu.
func (l *bodyLimiter) surplus() *limitedBody {
	if oldest := l.arriving[0]; time.Since(oldest.since) > sharedGrace {
		return oldest
	}
	return slices.MaxFunc(l.arriving, func(a, b *limitedBody) int { return cmp.Compare(a.held, b.held) })
}

// cutOff takes the share away and ends the reading. The caller holds mu.
func (b *limitedBody) cutOff() {
	b.arrived()
	b.cut = true
	b.limiter.taken -= b.held
	b.held = 0
	b.setDeadline(time.Now())
}

// arrived records that no more of the body arrives. The caller holds mu.
func (b *limitedBody) arrived() {
	b.limiter.arriving = slices.DeleteFunc(b.limiter.arriving, func(other *limitedBody) bool { return other == b })
}

// release must be called when the body is no longer in use.
func (b *limitedBody) release() {
	if b.read <= freeBody {
		return
	}
	b.limiter.mu.Lock()
	defer b.limiter.mu.Unlock()
	b.arrived()
	b.limiter.taken -= b.held
}

// bodyPiece is the size of a read buffer, in bytes. Most bodies fit into one.
const bodyPiece = 8 << 10

// pieces holds read buffers, each a *[bodyPiece]byte. A call returns its own when it is decided.
var pieces = sync.Pool{New: func() any { return new([bodyPiece]byte) }}

// readPieces reads to the end, first into the empty piece. With an error it returns some of the
// beginning. It does not grow one buffer: that would leave as much garbage again for each large
// body that is rejected.
func readPieces(from io.Reader, piece []byte) ([]byte, error) {
	var full [][]byte
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

// setReadDeadline ignores errors: a writer that is no connection has no deadlines, and a closed one
// needs none.
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

// withDeadline returns the request's context with a deadline that leaves the apiserver time to
// receive the response. Cancel must be called when the request is decided.
func withDeadline(r *http.Request) (_ context.Context, cancel func()) {
	timeout, alone := strings.CutPrefix(r.URL.RawQuery, "timeout=") // as kube-apiserver writes it
	if !alone || strings.ContainsAny(timeout, "&;%+") {
		timeout = r.URL.Query().Get("timeout")
	}
	d := &lateDeadline{Context: r.Context(), at: time.Now().Add(timeToDecide(timeout))}
	return d, d.end
}

// lateDeadline is a context with a deadline, whose timer starts when somebody waits for the context:
// few requests wait, and each timer may wake a thread for nothing.
type lateDeadline struct {
	context.Context //nolint:containedctx // this is a context

	at     time.Time
	start  sync.Once
	timed  context.Context //nolint:containedctx // likewise
	cancel context.CancelFunc
}

func (d *lateDeadline) started() context.Context {
	d.start.Do(func() { d.timed, d.cancel = context.WithDeadline(d.Context, d.at) })
	return d.timed
}

// end starts no timer from now on, and stops a started one.
func (d *lateDeadline) end() {
	d.start.Do(func() { d.timed, d.cancel = d.Context, func() {} })
	d.cancel()
}

// Deadline implements context.Context.
func (d *lateDeadline) Deadline() (time.Time, bool) { return d.at, true }

// Done implements context.Context.
func (d *lateDeadline) Done() <-chan struct{} { return d.started().Done() }

// Err implements context.Context.
func (d *lateDeadline) Err() error { return d.started().Err() }

// AfterFunc saves contexts that derive from this one a goroutine each.
func (d *lateDeadline) AfterFunc(f func()) (stop func() bool) {
	return context.AfterFunc(d.started(), f)
}

// timeToDecide returns the timeout in the URL, such as "10s", less answerMargin, but at least a
// quarter of it: of one second the margin would leave nothing. A missing or invalid timeout counts
// as maxTimeout.
func timeToDecide(parameter string) time.Duration {
	timeout, err := time.ParseDuration(parameter)
	if err != nil || timeout <= 0 || timeout > maxTimeout {
		timeout = maxTimeout
	}
	return max(timeout-answerMargin, timeout/4)
}
