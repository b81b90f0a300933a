// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

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
	Deleted     State = "deleted"     // a user has deleted it twice
	Idle        State = "idle"        // mode none, or another replica leads
)

func states() []State {
	return []State{Starting, Waiting, Proving, Repairing, Registered, Unreachable, Unknown, Off, Deleted, Idle}
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
