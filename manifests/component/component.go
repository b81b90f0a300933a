// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package component edits the manifests of the two components that a takeover changes, kube-apiserver and
// kube-controller-manager: there and back.
//
// Everything here is pure: it gets the files that the node has, and returns what they become.
package component

import (
	"fmt"
	"reflect"
	"slices"

	"sa-controller-manager/manifests/staticpod"
)

// The components whose manifests are changed, named as their Pods and files; and Manager, our own.
const (
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Manager           = "sa-controller-manager"
)

// Flags of the three.
const (
	ControllersFlag = "controllers"
	KeyFlag         = "service-account-private-key-file"
	KeyRingFlag     = "service-account-key-ring"
)

// Assign returns a flag with its value, as in a command.
func Assign(flag, value string) string { return "--" + flag + "=" + value }

// Files are a component's manifest and what takeovers have kept of it and for kubeadm, nil for what
// does not exist.
type Files struct {
	Name                    string
	Manifest, Backup, Patch []byte
	Taken                   *Taken
}

// Parse returns the manifest.
func (f Files) Parse() (*staticpod.Manifest, error) {
	m, err := staticpod.Parse(f.Manifest, f.Name)
	if err != nil {
		return nil, fmt.Errorf("the manifest of %s: %w", f.Name, err)
	}
	return m, nil
}

// Command is that of the manifest, nil if it cannot be read: the callers that need it report the error.
func (f Files) Command() staticpod.Command {
	m, err := f.Parse()
	if err != nil {
		return nil
	}
	return m.Command()
}

// Operators returns the manifest as the operator has it. If that has not been edited since the takeover, it is the
// backup, byte for byte; otherwise what was changed goes, and everything else stays. A backup has no changes of ours.
func (f Files) Operators() (*staticpod.Manifest, error) {
	now, err := f.Parse()
	if err != nil || f.Taken == nil {
		return now, err
	}
	backup, _ := staticpod.Parse(f.Backup, f.Name) // it may be gone or damaged
	undone, err := now.Apply(f.Taken.undo(now))
	if err != nil {
		return nil, fmt.Errorf("the manifest of %s without our changes: %w", f.Name, err)
	}
	if backup != nil && undone.Equal(backup) {
		return backup, nil
	}
	return undone, nil
}

// Takeover returns what a takeover makes of the files. changes are those of kube-apiserver.
func (f Files) Takeover(changes Changes) (Files, error) {
	if f.Taken == nil && f.Patch != nil {
		return f, f.unrecorded("the patch for kubeadm")
	}
	first, err := f.Operators()
	if err != nil {
		return f, err
	}
	if line := f.left(first.Command()); f.Taken == nil && line != "" && (keyIsTaken(first.Command()) || f.backupLacks(line)) {
		return f, f.unrecorded(line)
	}
	of := changes.of
	if f.Name == ControllerManager {
		of = controllersOff
	}
	now, err := f.Parse()
	if err != nil {
		return f, err
	}
	var taken Taken
	var after *staticpod.Manifest
	if err = notOlder(first.Image(), oldestMinor, "that is supported"); err == nil {
		taken, err = of(first)
	}
	if err == nil {
		after, err = first.Apply(append(annotation(first, now.Annotations()[RestartAnnotation]), taken.patch()...))
	}
	if err != nil {
		return f, fmt.Errorf("the manifest of %s: %w", f.Name, err)
	}
	if f.Taken != nil && reflect.DeepEqual(taken, *f.Taken) && taken.in(now) {
		after = now // in the operator's order
	}
	patch, err := kubeadmPatch(taken)
	return Files{Name: f.Name, Manifest: after.Bytes(), Backup: first.Bytes(), Patch: patch, Taken: &taken}, err
}

// Handback returns what a handback makes of the files.
func (f Files) Handback() (Files, error) {
	first, err := f.Operators()
	if err != nil {
		return f, err
	}
	if left := f.left(first.Command()); left != "" {
		return f, f.unrecorded(left)
	}
	after := Files{Name: f.Name, Manifest: first.Bytes(), Backup: f.Backup}
	if f.Taken != nil {
		after.Backup = first.Bytes()
	}
	return after, nil
}

// left returns a line that only a takeover writes, "" if there is none.
func (f Files) left(command staticpod.Command) string {
	for _, line := range []string{signerLine(), Assign(AdmissionConfigFlag, AdmissionConfigFile)} {
		if slices.Contains(command, line) {
			return line
		}
	}
	if keyIsTaken(command) {
		return "a last " + Assign(KeyFlag, "")
	}
	return ""
}

// backupLacks reports whether a takeover has written a line: a cluster that was created with it has it in the backup, too.
func (f Files) backupLacks(line string) bool {
	backup, err := staticpod.Parse(f.Backup, f.Name)
	return err == nil && !slices.Contains(backup.Command(), line)
}

// keyIsTaken reports whether a takeover has taken the key of kube-controller-manager: kubeadm gives no flag twice.
func keyIsTaken(command staticpod.Command) bool {
	keys := command.All(KeyFlag)
	return len(keys) > 1 && keys[len(keys)-1] == ""
}

func (f Files) unrecorded(what string) error {
	return fmt.Errorf("there is %s, but no record of what a takeover has changed in the manifest of %s; put it back by hand, "+
		"from its backup or without the lines of the patch, and remove the patch (\"By hand\" in docs/takeover.md)", what, f.Name)
}
