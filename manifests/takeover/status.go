// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"bytes"

	"sa-controller-manager/admission/configfile"
	"sa-controller-manager/admission/registration"
	"sa-controller-manager/internal/check"
	"sa-controller-manager/internal/printers"
	"sa-controller-manager/manifests/component"
)

// Words of Status.State.
const (
	TakenOver    = "taken-over"
	Partly       = "partly"
	NotTakenOver = "not-taken-over"
)

// Status is what the files of a node say of its takeover.
type Status struct {
	printers.Head

	Node  string `json:"node"`
	State string `json:"state"`
	// Flags are those of the last takeover that do not follow from the manifests, and Command is that of our Pod.
	Flags      []string          `json:"flags"`
	Command    []string          `json:"command,omitempty"`
	Components []ComponentStatus `json:"components"`
	Findings   []check.Finding   `json:"findings"`
}

// ComponentStatus is what they say of kube-controller-manager or kube-apiserver.
type ComponentStatus struct {
	Name      string `json:"name"`
	TakenOver bool   `json:"takenOver"`
	Backup    bool   `json:"backup"`
	Patch     bool   `json:"patch"`
}

// Status reads the files of this node.
func (c *Config) Status() (*Status, error) {
	o, err := c.observe()
	if err != nil {
		return nil, err
	}
	s := &Status{
		Head: printers.Of("TakeoverStatus"), Node: c.Node, State: Partly, Command: o.current,
		Flags: append([]string{}, o.record.Flags...), Findings: []check.Finding{},
	}
	changes := c.changes(o, o.apiServer().ReadsFiles() || o.registers() == registration.Static)
	done, wanted := 0, 0
	for _, name := range []string{component.ControllerManager, component.APIServer} {
		file := o.files[name]
		taken, err := file.Takeover(changes)
		keeps := name == component.APIServer && !changes.Plugin && !changes.Signer || // all that it has
			name == component.ControllerManager && component.OnlySigns(o.own)
		is := err == nil && !keeps && bytes.Equal(taken.Manifest, file.Manifest)
		if !keeps {
			wanted++
		}
		if is {
			done++
		}
		s.Components = append(s.Components, ComponentStatus{name, is, file.Backup != nil, file.Patch != nil})
	}
	if m, err := o.apiServer().Operators(); err == nil && o.apiServer().ReadsFiles() {
		if _, err := c.copyOf(o, m); err != nil {
			finding := configfile.Changed.Found().Because(err.Error())
			finding.Host = c.Node
			s.Findings = append(s.Findings, finding)
		}
	}
	switch {
	case o.current != nil && done == wanted && len(s.Findings) == 0: // it is not damaged
		s.State = TakenOver
	case o.manager == nil && done == 0:
		s.State = NotTakenOver
	}
	return s, nil
}
