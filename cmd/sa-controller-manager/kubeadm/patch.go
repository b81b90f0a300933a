// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import "strings"

// kubeadmPatch is a JSON patch that makes of the manifest which kubeadm renders what a
// takeover makes of the one that is there. It appends, so it needs to know nothing about
// the rest of the command; a strategic merge patch would replace all of it, and with that
// undo what a new kubeadm puts there. kubeadm's manifests have one container.
func kubeadmPatch(one component) []byte {
	var b strings.Builder
	b.WriteString("# Written by sa-controller-manager kubeadm takeover, for kubeadm upgrade --patches.\n")
	for _, line := range one.lines {
		b.WriteString("- op: add\n  path: /spec/containers/0/command/-\n  value: \"" + line + "\"\n")
	}
	return []byte(b.String())
}
