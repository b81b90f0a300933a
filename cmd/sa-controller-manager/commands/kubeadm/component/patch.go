// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod"
	"sa-controller-manager/manifests"
)

const patchHead = "# Written by sa-controller-manager kubeadm takeover, for kubeadm upgrade --patches.\n"

// kubeadmPatch returns a JSON patch that changes the manifest of kubeadm upgrade as a takeover changes
// the existing one. It appends, and so does not depend on the rest of the command; a strategic merge
// patch would replace the whole command and undo what a new kubeadm writes. kubeadm's manifests have
// one container.
//
// A handback reads the patch as the record of what takeovers have added. An empty patch records that
// everything was off before.
func kubeadmPatch(lines []string, mounts ...staticpod.Mount) []byte {
	operations := additions(lines, mounts)
	if len(operations) == 0 {
		operations = []string{"[]\n"}
	}
	return []byte(patchHead + strings.Join(operations, ""))
}

const atTheEnd = "/spec/containers/0/command/-"

// additions are the operations that add lines at the end and mounts at the beginning.
func additions(lines []string, mounts []staticpod.Mount) (operations []string) {
	add := func(path, value string) {
		operations = append(operations, "- op: add\n  path: "+path+"\n  value: "+value+"\n")
	}
	for _, line := range lines {
		add(atTheEnd, strconv.Quote(line))
	}
	for _, mount := range mounts {
		add("/spec/containers/0/volumeMounts/0", "{mountPath: "+mount.Path+", name: "+mount.Name+", readOnly: true}")
		add("/spec/volumes/0", "{hostPath: {path: "+mount.Path+", type: DirectoryOrCreate}, name: "+mount.Name+"}")
	}
	return operations
}

// recorded returns the lines that a patch adds. known is false if the patch is missing or damaged.
func recorded(patch []byte) (lines []string, known bool) {
	var operations []struct {
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	if len(patch) == 0 || yaml.Unmarshal(patch, &operations) != nil {
		return nil, false
	}
	lines = []string{}
	for _, one := range operations {
		if line, ok := one.Value.(string); ok && one.Path == atTheEnd {
			lines = append(lines, line)
		}
	}
	return lines, true
}

// hasRecorded reports whether a manifest has a line that a takeover has added.
func hasRecorded(m *staticpod.Manifest, patch []byte) bool {
	lines, _ := recorded(patch)
	return slices.ContainsFunc(m.Command(), func(line string) bool { return slices.Contains(lines, line) })
}

// added returns the lines of a command after a takeover that this or earlier ones have added, in order; e
// is what takeovers add to the first manifest. known is false for a cluster that was created with our
// process: there is nothing to add, and what was there before is unknown.
func (f Files) added(after *staticpod.Manifest, e staticpod.Edit) (lines []string, known bool) {
	before, known := recorded(f.Patch)
	for _, line := range after.Command() {
		if slices.Contains(slices.Concat(before, e.Append), line) && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return lines, known || !f.WithOurs || len(e.Append) > 0
}

// patch returns the patch for a component whose manifest was first before any takeover. A JSON patch
// removes by position, so a test precedes each removal: if a new kubeadm renders another order, its
// upgrade fails before it changes anything.
func (c Component) patch(f Files, first, after *staticpod.Manifest) ([]byte, error) {
	e, err := collect(first, c.out...)
	if err != nil {
		return nil, fmt.Errorf("the manifest of %s: %w", c.Name, err)
	}
	lines, known := f.added(after, e)
	if !known {
		return nil, nil
	}
	if !slices.Contains(c.lines, Assign(endpointFlag, manifests.SignerSocket)) {
		return kubeadmPatch(lines, c.mounts...), nil
	}
	var b strings.Builder
	existing := f.Patch
	if len(e.Remove) > 0 || existing == nil {
		existing = []byte(patchHead)
	}
	b.Write(existing) // if it has removals, their positions are not known any more
	command := first.Command()
	for _, i := range slices.Backward(slices.Sorted(slices.Values(e.Remove))) {
		at := "  path: /spec/containers/0/command/" + strconv.Itoa(i) + "\n"
		b.WriteString("- op: test\n" + at + "  value: " + strconv.Quote(command[i]) + "\n- op: remove\n" + at)
	}
	for _, operation := range additions(lines, c.mounts) {
		if !bytes.Contains(existing, []byte(operation)) {
			b.WriteString(operation)
		}
	}
	return []byte(b.String()), nil
}
