// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"errors"
	"slices"
)

// State is the state of the registration.
type State string

// The states.
const (
	Starting   State = "starting"
	Waiting    State = "waiting"
	Proving    State = "proving"
	Repairing  State = "repairing"
	Registered State = "registered"
	Off        State = "off"     // a user has switched it off
	Deleted    State = "deleted" // a user has deleted it twice
	Idle       State = "idle"    // mode none, or another replica leads
)

// Status is the state with details in words.
type Status struct {
	State  State
	Detail string
	// Failing means that what is registered fails on another host, as Detail says.
	Failing bool
}

func (s Status) String() string {
	if s.Detail == "" {
		return string(s.State)
	}
	return string(s.State) + ": " + s.Detail
}

// Check returns an error if the registration is not as intended. A user may intend that it is off.
func (s Status) Check() error {
	if s.Failing || slices.Contains([]State{Starting, Waiting, Proving, Repairing}, s.State) {
		return errors.New(s.String())
	}
	return nil
}
