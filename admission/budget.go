// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"errors"
	"io"
	"sync/atomic"
)

const (
	// freeBody is how much of each body is read whatever else goes on, in bytes. It is more
	// than most Pods need. With all that may arrive and be decided it is 25 MiB. Beyond it
	// a slow body can keep others out.
	freeBody = 16 << 10

	// bodyBudget is how much of all bodies together may be held beyond that, in bytes: a
	// review of the greatest size always fits if it comes alone.
	bodyBudget = maxBody
)

// errBodyBudget: other large bodies are being decided on.
var errBodyBudget = errors.New("too many large admission requests at the same time, please try again")

// budget bounds what all bodies together take. Without it, calls in flight times their
// greatest size would be gigabytes. The zero value is ready to use.
type budget struct{ taken atomic.Int64 }

// budgeted is a body that takes from the budget what is read of it.
type budgeted struct {
	from       io.Reader
	budget     *budget
	read, held int64
}

// Read implements io.Reader.
func (b *budgeted) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	b.read += int64(n)
	if more := b.read - freeBody - b.held; more > 0 {
		if b.budget.taken.Add(more) > bodyBudget {
			b.budget.taken.Add(-more)
			return 0, errBodyBudget
		}
		b.held += more
	}
	return n, err
}

// release gives back what was taken, once nobody holds the body any more.
func (b *budgeted) release() { b.budget.taken.Add(-b.held) }
