// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package ring

import (
	"fmt"
	"slices"
	"strings"

	"sa-controller-manager/signing"
)

// Manual is a place where a person publishes the keys by hand, such as a workload identity pool with
// an uploaded JWKS.
type Manual struct {
	// Name is the person's word for it: letters, digits, '.', '_' and '-'.
	Name string `json:"name"`
	// Confirmed are the IDs of the keys that the person says are there.
	Confirmed []string `json:"confirmed,omitempty"`
}

// AddManual adds a place, of which no key is confirmed.
func AddManual(state State, name string) (State, error) {
	if state.manual(name) >= 0 {
		return State{}, &Refusal{Reason: name + " is published manually", Remedy: "nothing to do", Done: true}
	}
	if err := (Manual{Name: name}).validate(); err != nil {
		return State{}, refuse(err.Error(), "choose another name")
	}
	next := state.next()
	next.Manual = append(next.Manual, Manual{Name: name})
	return next.sealed()
}

// ForgetManual removes a place, which holds no step from then on.
func ForgetManual(state State, name string) (State, error) {
	i := state.manual(name)
	if i < 0 {
		return State{}, refuseManual(state, name)
	}
	next := state.next()
	next.Manual = slices.Delete(next.Manual, i, i+1)
	return next.sealed()
}

// ConfirmManual records that a key of the ring is published at a place.
func ConfirmManual(state State, name, id string) (State, error) {
	i := state.manual(name)
	if i < 0 {
		return State{}, refuseManual(state, name)
	}
	if _, ok := state.Key(id); !ok {
		return State{}, refuse("the ring has no key "+id, "name one that it lists")
	}
	if slices.Contains(state.Manual[i].Confirmed, id) {
		return State{}, &Refusal{Reason: fmt.Sprintf("key %s is confirmed at %s", id, name), Remedy: "nothing to do", Done: true}
	}
	next := state.next()
	next.Manual[i].Confirmed = append(next.Manual[i].Confirmed, id)
	return next.sealed()
}

func refuseManual(state State, name string) error {
	var names []string
	for _, place := range state.Manual {
		names = append(names, place.Name)
	}
	return refuse(fmt.Sprintf("the ring has no place %q that is published manually", name), fmt.Sprintf("name one of %q", names))
}

func (s State) manual(name string) int {
	return slices.IndexFunc(s.Manual, func(place Manual) bool { return place.Name == name })
}

// confirmed refuses a step while a place lacks a key.
func (s State) confirmed(id, breaks string) error {
	for _, place := range s.Manual {
		if !slices.Contains(place.Confirmed, id) {
			return &Refusal{
				Reason: fmt.Sprintf("nobody has confirmed that key %s is published at %s", id, place.Name),
				Remedy: fmt.Sprintf("publish it there, and then: keys publish confirm %s --key-id=%s", place.Name, id),
				Later:  true, Breaks: breaks,
			}
		}
	}
	return nil
}

// withoutKey removes what was confirmed of a key that leaves a state that is not out yet.
func (s State) withoutKey(id string) {
	for i := range s.Manual {
		s.Manual[i].Confirmed = slices.DeleteFunc(s.Manual[i].Confirmed, func(confirmed string) bool { return confirmed == id })
	}
}

func (m Manual) validate() error {
	notName := func(r rune) bool { return notKeyID(r) && r != '.' }
	if m.Name == "" || len(m.Name) > 63 || strings.ContainsFunc(m.Name, notName) {
		return fmt.Errorf("the name %.70q is not 1 to 63 letters, digits, '.', '_' and '-'", m.Name)
	}
	return nil
}

func (s State) validateManual() error {
	for i, place := range s.Manual {
		if err := place.validate(); err != nil {
			return fmt.Errorf("publishedManually[%d]: %w", i, err)
		}
		if s.manual(place.Name) != i {
			return fmt.Errorf("publishedManually[%d]: %q is there twice", i, place.Name)
		}
		for _, id := range place.Confirmed {
			if signing.CheckKeyID(id) != nil {
				return fmt.Errorf("publishedManually[%d]: %.70q is no key ID", i, id)
			}
		}
	}
	return nil
}
