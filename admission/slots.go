// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import "time"

// arrivingFactor is how many bodies may be on their way for each call that may be decided.
// Those that arrive slowly, or never, must not keep others from being decided, as far as these
// need no bodyBudget. It is more than the connections that may have calls (see connections),
// so that over HTTP/1.1, where a connection has one at a time, nobody is refused for them.
const arrivingFactor = 3

// slots are the calls that may be in a stage at the same time.
type slots struct {
	taken chan struct{}
	count func(more float64)
}

func newSlots(most int, count func(more float64)) slots {
	return slots{make(chan struct{}, most), count}
}

// take is false if all are taken.
func (s slots) take() bool {
	select {
	case s.taken <- struct{}{}:
		s.count(1)
		return true
	default:
		return false
	}
}

func (s slots) giveBack() {
	<-s.taken
	s.count(-1)
}

// errTooMany is for whom there is no slot.
func errTooMany() error {
	return TooManyRequests("too many admission requests at the same time, please try again", time.Second)
}
