// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package overload

import (
	"fmt"
	"time"

	"sa-controller-manager/test/faults/checker"
)

// What a well-behaved client may expect while broken clients load the same server. The
// objective and its reasons are in docs/reliability.md, "Under load"; every bound on the time
// of an answer comes from here.
const (
	// CallerTimeout is what kube-apiserver waits for the webhook (--webhook-timeout, by
	// default). It sets the signer no time of its own, and is not to wait longer for it.
	CallerTimeout = 10 * time.Second
	// slowest is what ninety-nine in a hundred may take at most: a Pod with the two or three
	// times that the webhook is asked about it, or one call of the signer. After callerWaits
	// the Pod would be refused. Things have to be four times worse than this for that, and this
	// is more than twice what is measured on two processors (0.6 to 1 s), so that the unrest of
	// a machine is not taken for that of the server.
	slowest = CallerTimeout / 4

	// MostByOthers is which part of the machine other programs may take, or times that are too
	// long are nobody's fault.
	MostByOthers = 0.2
)

// tooSlow holds sorted times to the objective. That nobody was answered breaks it, too.
func tooSlow(promise int, what string, took []time.Duration) []checker.Violation {
	if len(took) == 0 {
		return []checker.Violation{checker.Violated(promise, "under load there was no %s at all", what)}
	}
	if p99 := Quantile(took, 99); p99 > slowest {
		return []checker.Violation{checker.Violated(promise, "one %s in a hundred took %v under load, want %v at most", what, p99, slowest)}
	}
	return nil
}

// JudgeTimes puts what is too slow into the outcome. If others have used the machine, it is an
// error instead: then it cannot be told whose fault it is.
func JudgeTimes(o *checker.Outcome, promise int, what string, took []time.Duration, by Result) error {
	found := tooSlow(promise, what, took)
	if len(found) > 0 && by.disturbed() {
		return fmt.Errorf("%s, but other programs took %.0f %% of the processors' time", found[0].What, 100*by.others)
	}
	o.Violations = append(o.Violations, found...)
	return nil
}

// Quantile is a percentile of sorted times.
func Quantile(sorted []time.Duration, percent int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[len(sorted)*percent/100].Round(time.Millisecond)
}
