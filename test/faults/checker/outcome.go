// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package checker

import (
	"fmt"
	"slices"
	"time"

	"sa-controller-manager/test/faults/workload"
)

// Excuse says what the product may do while a fault is under way.
type Excuse int

const (
	// NoExcuse means that a Pod that comes now is admitted like any other.
	NoExcuse Excuse = iota
	// FreshRefused means that Pods may be refused whose account is so young that only kube-apiserver
	// knows of it, because the replicas cannot ask.
	FreshRefused
	// Refused means that every Pod may be refused.
	Refused
	// Bare means that a person has taken the webhook out, so Pods come in without it. Others are
	// refused by the half that is left.
	Bare
)

// excuseLag is how long a fault goes on to be felt after its end: a balancer learns of a
// replica, kube-apiserver of a configuration, a connection of its end. A balancer takes
// balancerLag for that, and what shares two processors with a control plane stands still for
// a second or two now and then.
const (
	excuseLag   = 4500 * time.Millisecond
	BalancerLag = 2500 * time.Millisecond
)

// Interval is a time in which something is excused.
type Interval struct {
	From, To time.Time
	Excuse   Excuse
}

// overlaps reports whether a call met the interval or what it left behind.
func (i *Interval) overlaps(call workload.Call) bool {
	return call.Ended.After(i.From) && call.Begun.Before(i.To.Add(excuseLag))
}

// JudgeCall says what is wrong with a call, "" if nothing is.
func JudgeCall(call workload.Call, excuses []*Interval) string {
	var met []Excuse
	for _, one := range excuses {
		if !one.overlaps(call) {
			continue
		}
		met = append(met, one.Excuse)
		if one.Excuse == FreshRefused && call.AccountSince.After(one.From.Add(-excuseLag)) {
			met = append(met, Refused)
		}
	}
	switch {
	case call.Unwanted && call.Err == nil && !slices.Contains(met, Bare):
		return "it was admitted, and its account does not exist"
	case call.Unwanted:
		return ""
	case call.Err != nil && !slices.Contains(met, Refused) && !slices.Contains(met, Bare):
		return "it was refused: " + call.Err.Error()
	case call.Err == nil && call.Lacks != "" && !slices.Contains(met, Bare):
		return "it was admitted without its " + call.Lacks
	}
	return ""
}

// Outcome is what a run has shown.
type Outcome struct {
	Violations []Violation
	// Unsure are those of which other programs on the machine may be the reason.
	Unsure []Violation
	// Injected are faults, by kind.
	Injected map[string]int
	// What was looked at: operations of users, Pods, and others.
	Operations, Pods, Tokens, DeadTokens, Writes, LogBytes, Objects int
	// Reissued are token Secrets that replace another one.
	Reissued int
	// Settled is how long it took from the end of the last fault until all was well.
	Settled time.Duration
}

// Violation is a promise that was not kept.
type Violation struct {
	// Promise is its number in docs/reliability.md.
	Promise int
	What    string
}

// String is one line.
func (v Violation) String() string { return fmt.Sprintf("promise %d: %s", v.Promise, v.What) }

// Violated begins one that a check returns.
func Violated(promise int, format string, args ...any) Violation {
	return Violation{Promise: promise, What: fmt.Sprintf(format, args...)}
}

// Of selects those of one promise.
func Of(violations []Violation, promise int) []Violation {
	return slices.DeleteFunc(slices.Clone(violations), func(v Violation) bool { return v.Promise != promise })
}
