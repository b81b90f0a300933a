// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod"
	"sa-controller-manager/manifests"
)

const patchHead = "# Written by sa-controller-manager kubeadm takeover, for kubeadm upgrade --patches.\n"

// kubeadmPatch is a JSON patch that makes of the manifest which kubeadm renders what a
// takeover makes of the one that is there. It appends, so it needs to know nothing about
// the rest of the command; a strategic merge patch would replace all of it, and with that
// undo what a new kubeadm puts there. kubeadm's manifests have one container.
//
// It is the record of what takeovers have added too, for the handback: an empty one says
// that all was off before.
func kubeadmPatch(lines []string) []byte {
	var b strings.Builder
	b.WriteString(patchHead)
	appendLines(&b, lines)
	if len(lines) == 0 {
		b.WriteString("[]\n")
	}
	return []byte(b.String())
}

const atTheEnd = "/spec/containers/0/command/-"

func appendLines(b *strings.Builder, lines []string) {
	for _, line := range lines {
		b.WriteString("- op: add\n  path: " + atTheEnd + "\n  value: \"" + line + "\"\n")
	}
}

// recorded are the lines that a patch adds; known is false if it is not there or damaged.
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

// added are the lines that takeovers have added up to now and with e: those on record that
// still stand in the command come first. known is false for a cluster that was made with
// ours: there is nothing to add, and nobody knows what was there before.
func (o *observed) added(one component, now *staticpod.Manifest, e staticpod.Edit) (lines []string, known bool) {
	before, known := recorded(o.patches[one.name])
	for _, line := range before {
		if slices.Contains(now.Command(), line) && !slices.Contains(e.Append, line) {
			lines = append(lines, line)
		}
	}
	return append(lines, e.Append...), known || o.manager == nil || len(e.Append) > 0
}

// patch is the one of a component whose manifest was first. What a patch takes out it has
// to name by its place, so each removal is preceded by a test: if a new kubeadm renders
// another order, its upgrade ends before it has changed anything.
func (o *observed) patch(one component, first, now *staticpod.Manifest) ([]byte, error) {
	e, err := one.out(first)
	if err != nil {
		return nil, fmt.Errorf("the manifest of %s: %w", one.name, err)
	}
	lines, known := o.added(one, now, e)
	if !known {
		return nil, nil
	}
	if !slices.Contains(one.lines, assign(endpointFlag, manifests.SignerSocket)) {
		return kubeadmPatch(lines), nil
	}
	if len(e.Remove) == 0 && o.patches[one.name] != nil {
		return o.patches[one.name], nil // nobody knows any more where the flags were
	}
	var b strings.Builder
	b.WriteString(patchHead)
	command := first.Command()
	for _, i := range slices.Backward(slices.Sorted(slices.Values(e.Remove))) {
		at := "  path: /spec/containers/0/command/" + strconv.Itoa(i) + "\n"
		b.WriteString("- op: test\n" + at + "  value: " + strconv.Quote(command[i]) + "\n- op: remove\n" + at)
	}
	appendLines(&b, lines)
	mount := socketMount()
	b.WriteString("- op: add\n  path: /spec/containers/0/volumeMounts/0\n  value: {mountPath: " + mount.Path + ", name: " + mount.Name + ", readOnly: true}\n")
	b.WriteString("- op: add\n  path: /spec/volumes/0\n  value: {hostPath: {path: " + mount.Path + ", type: DirectoryOrCreate}, name: " + mount.Name + "}\n")
	return []byte(b.String()), nil
}
