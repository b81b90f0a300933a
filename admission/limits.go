// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"cmp"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"sa-controller-manager/internal/connlimit"
)

const (
	// DefaultMaxInFlight is how many calls are decided at the same time unless configured.
	DefaultMaxInFlight = 400

	// otherConnections may be open beside as many as there may be calls to decide: new and idle
	// ones, and those whose calls are rejected. Each takes some 30 KiB. kube-apiserver dials as
	// often at once as it creates Pods, and keeps 25 idle ones.
	otherConnections = 256

	// freeBody is how much of each body is read whatever else goes on, in bytes. It is more
	// than most Pods need. With all that may arrive and be decided it is 20 MiB. Beyond it
	// a slow body can keep others out.
	freeBody = 16 << 10

	// sharedBody is how much of all bodies together may be held beyond that, in bytes: a
	// review of the greatest size always fits if it comes alone.
	sharedBody = maxBody
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
	return TooManyRequests("too many admission requests at the same time, please try again", time.Second)
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
