// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod"
	"sa-controller-manager/manifests"
)

const patchHead = "# Written by sa-controller-manager kubeadm takeover, for kubeadm upgrade --patches.\n"

// kubeadmPatch is a JSON patch that makes of the manifest which kubeadm renders what a
// takeover makes of the one that is there. It appends, so it needs to know nothing about
// the rest of the command; a strategic merge patch would replace all of it, and with that
// undo what a new kubeadm puts there. kubeadm's manifests have one container.
func kubeadmPatch(one component) []byte {
	var b strings.Builder
	b.WriteString(patchHead)
	appendLines(&b, one.lines)
	return []byte(b.String())
}

func appendLines(b *strings.Builder, lines []string) {
	for _, line := range lines {
		b.WriteString("- op: add\n  path: /spec/containers/0/command/-\n  value: \"" + line + "\"\n")
	}
}

// patch is the one of a component whose manifest was first. What a patch takes out it has
// to name by its place, so each removal is preceded by a test: if a new kubeadm renders
// another order, its upgrade ends before it has changed anything.
func (o *observed) patch(one component, first *staticpod.Manifest) ([]byte, error) {
	e, err := one.out(first)
	if err != nil {
		return nil, fmt.Errorf("the manifest of %s: %w", one.name, err)
	}
	if !slices.Contains(one.lines, assign(endpointFlag, manifests.SignerSocket)) {
		return kubeadmPatch(one), nil
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
	appendLines(&b, one.lines)
	mount := socketMount()
	b.WriteString("- op: add\n  path: /spec/containers/0/volumeMounts/0\n  value: {mountPath: " + mount.Path + ", name: " + mount.Name + ", readOnly: true}\n")
	b.WriteString("- op: add\n  path: /spec/volumes/0\n  value: {hostPath: {path: " + mount.Path + ", type: DirectoryOrCreate}, name: " + mount.Name + "}\n")
	return []byte(b.String()), nil
}
