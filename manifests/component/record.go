// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"sa-controller-manager/manifests"
	"sa-controller-manager/manifests/staticpod"
)

// Record is what the last takeover was given and has changed: all that a handback goes by.
type Record struct {
	// Flags are those that do not follow from the manifests, --name=value, nil before a takeover.
	Flags []string `json:"flags,omitempty"`
	// Components are the changes to each.
	Components map[string]Taken `json:"components"`
}

// Taken is the record of one component.
type Taken struct {
	// Lines were added at the end of the command: each flag with what it was given.
	Lines []string `json:"lines,omitempty"`
	// Removed were taken out of the command, in order.
	Removed []Line `json:"removed,omitempty"`
	// Mounts were added.
	Mounts []Mount `json:"mounts,omitempty"`
}

// Line is a string of a command, at its place there.
type Line struct {
	At   int    `json:"at"`
	Text string `json:"text"`
}

// Mount is a directory of the host that the container sees under the same path, read
// only. The kubelet makes it if it is not there.
type Mount struct {
	Name string `json:"name"`
	Path string `json:"path"`
}

// ParseRecord reads what Encode writes, or no record.
func ParseRecord(data []byte) (r Record, err error) {
	if data == nil {
		return r, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	err = decoder.Decode(&r)
	if err == nil {
		if _, err = decoder.Token(); errors.Is(err, io.EOF) {
			return r, nil
		}
	}
	return r, fmt.Errorf("want the record of a takeover, as JSON: %w", err)
}

// With returns a copy with another record of a component, nil for none.
func (r Record) With(name string, taken *Taken) Record {
	other := Record{Flags: r.Flags, Components: map[string]Taken{}}
	maps.Copy(other.Components, r.Components)
	delete(other.Components, name)
	if taken != nil {
		other.Components[name] = *taken
	}
	return other
}

// Encode returns nil for an empty record.
func (r Record) Encode() []byte {
	if len(r.Flags)+len(r.Components) == 0 {
		return nil
	}
	data, _ := json.MarshalIndent(r, "", "  ") //nolint:errchkjson // strings and numbers cannot fail
	return append(data, '\n')
}

const (
	commandPath = "/spec/containers/0/command"
	mountsPath  = "/spec/containers/0/volumeMounts"
	volumesPath = "/spec/volumes"
)

func at(list string, i int) string { return list + "/" + strconv.Itoa(i) }

// patch returns the changes. What it adds does not depend on the rest of the command. A JSON patch removes by
// position, so a test precedes each removal: if a new kubeadm renders another order, its upgrade fails before
// it changes anything.
func (t *Taken) patch() (operations []staticpod.Operation) {
	operations = []staticpod.Operation{}
	for _, line := range slices.Backward(t.Removed) {
		operations = append(operations, staticpod.Operation{Op: "test", Path: at(commandPath, line.At), Value: line.Text},
			staticpod.Operation{Op: "remove", Path: at(commandPath, line.At)})
	}
	for _, line := range t.Lines {
		operations = append(operations, staticpod.Operation{Op: "add", Path: commandPath + "/-", Value: line})
	}
	for _, mount := range t.Mounts {
		operations = append(operations, staticpod.Operation{Op: "add", Path: at(mountsPath, 0), Value: map[string]any{
			"mountPath": mount.Path, "name": mount.Name, "readOnly": true,
		}},
			staticpod.Operation{Op: "add", Path: at(volumesPath, 0), Value: map[string]any{
				"hostPath": map[string]any{"path": mount.Path, "type": "DirectoryOrCreate"}, "name": mount.Name,
			}})
	}
	return operations
}

// kubeadmPatch is for kubeadm upgrade, which then writes what a takeover does. A strategic merge patch would have to
// hold the whole command, and would undo what a new kubeadm puts there.
func kubeadmPatch(t Taken) ([]byte, error) {
	data, err := yaml.Marshal(t.patch())
	return append([]byte("# Written by sa-controller-manager kubeadm takeover, for kubeadm upgrade --patches.\n"), data...), err
}

// RestartAnnotation has the kubelet restart a static pod when it changes. It is ours in any manifest.
const RestartAnnotation = "sa-controller-manager/restarted-at"

const annotationsPath = "/metadata/annotations"

// annotation returns the patch that sets it, or for "" removes it.
func annotation(m *staticpod.Manifest, value string) []staticpod.Operation {
	wanted := map[string]string{}
	maps.Copy(wanted, m.Annotations())
	if delete(wanted, RestartAnnotation); value != "" {
		wanted[RestartAnnotation] = value
	}
	switch {
	case maps.Equal(wanted, m.Annotations()):
		return nil
	case len(wanted) == 0:
		return []staticpod.Operation{{Op: "remove", Path: annotationsPath}}
	}
	return []staticpod.Operation{{Op: "add", Path: annotationsPath, Value: wanted}}
}

// Restart returns the files with another value of the annotation. A manifest that no takeover has changed is recorded,
// so that a handback restores it.
func (f Files) Restart(value string) (Files, error) {
	if f.Taken == nil && f.Patch != nil {
		return f, f.unrecorded("the patch for kubeadm")
	}
	now, err := f.Parse()
	if err != nil {
		return f, err
	}
	if f.Taken == nil {
		f.Backup, f.Taken = f.Manifest, &Taken{}
	}
	after, err := now.Apply(annotation(now, value))
	if err != nil {
		return f, fmt.Errorf("the manifest of %s: %w", f.Name, err)
	}
	f.Manifest = after.Bytes()
	return f, nil
}

// undo returns the patch that takes out of a manifest what is left of the changes.
func (t *Taken) undo(m *staticpod.Manifest) []staticpod.Operation {
	operations := annotation(m, "")
	before := m.Command()
	if command := t.undone(before); !slices.Equal(command, before) {
		operations = append(operations, staticpod.Operation{Op: "replace", Path: commandPath, Value: command})
	}
	remove := func(list string, i int) {
		operations = append(operations, staticpod.Operation{Op: "remove", Path: at(list, i)})
	}
	for i, mount := range slices.Backward(m.Spec().Containers[0].VolumeMounts) {
		if slices.Contains(t.Mounts, Mount{mount.Name, mount.MountPath}) {
			remove(mountsPath, i)
		}
	}
	for i, volume := range slices.Backward(m.Spec().Volumes) {
		if volume.HostPath != nil && slices.Contains(t.Mounts, Mount{volume.Name, volume.HostPath.Path}) {
			remove(volumesPath, i)
		}
	}
	return operations
}

// undone returns a command without the lines, and with what was removed if our process has signed.
func (t *Taken) undone(command staticpod.Command) staticpod.Command {
	signed := false
	for _, line := range t.Lines {
		var found bool
		command, found = withoutLine(command, line)
		signed = signed || found && line == signerLine()
	}
	// Without the line, as where an operator has taken it out, kube-apiserver has its own keys, or another signer, or none.
	if !signed && slices.ContainsFunc([]string{endpointFlag, SigningKeyFlag, VerifyKeyFlag}, func(flag string) bool {
		return len(command.All(flag)) > 0
	}) {
		return command
	}
	present := command
	for _, line := range t.Removed {
		if !slices.Contains(present, line.Text) {
			command = slices.Insert(slices.Clone(command), min(line.At, len(command)), line.Text)
		}
	}
	return command
}

// withoutLine removes a line, the last of several equal ones. If it was edited since, it removes the elements of
// the list, provided that one line has them all. The operator's own opt-outs are in other lines.
func withoutLine(command staticpod.Command, line string) (left staticpod.Command, found bool) {
	left = slices.Clone(command)
	for i, one := range slices.Backward(left) {
		if one == line {
			return slices.Delete(left, i, i+1), true
		}
	}
	flag, ours, _ := strings.Cut(line, "=")
	// Without a "*" only controllers that are named would run.
	elements := slices.DeleteFunc(staticpod.Split(ours), func(one string) bool { return one == allControllers })
	for i, one := range slices.Backward(left) {
		written, list, ok := strings.Cut(one, "=")
		if !ok || staticpod.FlagName(written) != staticpod.FlagName(flag) {
			continue
		}
		rest, all := without(staticpod.Split(list), elements)
		if text := strings.Join(rest, ","); all && (text == "" || text == allControllers && strings.HasPrefix(ours, text)) {
			return slices.Delete(left, i, i+1), true
		} else if all {
			left[i] = written + "=" + strings.Join(rest, ",")
			return left, true
		}
	}
	return left, false
}

// without removes elements from a list. all reports whether each was in it, and there was one.
func without(list, elements []string) (left []string, all bool) {
	left = slices.Clone(list)
	for _, one := range elements {
		i := slices.Index(left, one)
		if i < 0 {
			return nil, false
		}
		left = slices.Delete(left, i, i+1)
	}
	return left, len(elements) > 0
}

// mount adds directories that the manifest does not have yet.
func (t *Taken) mount(m *staticpod.Manifest, mounts ...Mount) {
	for _, mount := range mounts {
		has := func(one corev1.VolumeMount) bool { return Mount{one.Name, one.MountPath} == mount }
		if !slices.ContainsFunc(m.Spec().Containers[0].VolumeMounts, has) {
			t.Mounts = append(t.Mounts, mount)
		}
	}
}

// in reports whether a manifest has the changes, wherever they are: an operator may have added lines after them.
func (t *Taken) in(m *staticpod.Manifest) bool {
	command := m.Command()
	for _, line := range t.Lines {
		flag, value, _ := strings.Cut(strings.TrimLeft(line, "-"), "=")
		list := flag == ControllersFlag || flag == disableFlag
		if list && !slices.Contains(command, line) || !list && (command.Last(flag) != value || len(command.All(flag)) == 0) {
			return false
		}
	}
	for _, gone := range t.Removed {
		if slices.Contains(command, gone.Text) {
			return false
		}
	}
	var lacks Taken
	lacks.mount(m, t.Mounts...)
	return len(lacks.Mounts) == 0
}

func signerLine() string { return Assign(endpointFlag, manifests.SignerSocket) }
