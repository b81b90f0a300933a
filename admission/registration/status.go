// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import "errors"

// State is how far the registration is.
type State string

// The states.
const (
	Starting   State = "starting"
	Waiting    State = "waiting"
	Proving    State = "proving"
	Repairing  State = "repairing"
	Registered State = "registered"
	Off        State = "off"     // a person has switched it off
	Deleted    State = "deleted" // a person has deleted it twice
	Idle       State = "idle"    // mode none, or not running
)

// Status is the state and what is to be known about it, for people.
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

// Check is nil unless the registration is not what it should be by now. What a person
// has switched off is as it should be.
func (s Status) Check() error {
	switch s.State {
	case Registered, Off, Deleted, Idle:
		return nil
	default:
		return errors.New(s.String())
	}
}
