// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"sync/atomic"

	"k8s.io/klog/v2"
)

// State is the state of the registration.
type State string

// The states.
const (
	Starting    State = "starting"
	Waiting     State = "waiting"
	Proving     State = "proving"
	Repairing   State = "repairing"
	Registered  State = "registered"
	Unreachable State = "unreachable" // it is bound, and kube-apiserver does not reach it: Pods are refused
	Unknown     State = "unknown"     // it is bound, and whether kube-apiserver reaches it cannot be asked
	Off         State = "off"         // a user has switched it off
	Idle        State = "idle"        // this replica does not lead
)

func states() []State {
	return []State{Starting, Waiting, Proving, Repairing, Registered, Unreachable, Unknown, Off, Idle}
}

// Status is the state with details in words.
type Status struct {
	State  State
	Detail string
}

func (s Status) String() string {
	if s.Detail == "" {
		return string(s.State)
	}
	return string(s.State) + ": " + s.Detail
}

// board has the present status.
type board struct {
	status  atomic.Pointer[Status]
	metrics *Metrics
}

// Status returns the state of the registration.
func (b *board) Status() Status { return *b.status.Load() }

// show publishes a status, and returns the state before.
func (b *board) show(ctx context.Context, status Status) State {
	last := b.status.Swap(&status)
	b.metrics.state(status.State)
	if last == nil || last.State == status.State {
		return status.State
	}
	klog.FromContext(ctx).Info("Changed the state of the webhook registration", "state", status.State, "detail", status.Detail)
	return last.State
}
