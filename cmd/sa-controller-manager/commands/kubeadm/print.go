// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"fmt"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
)

// devNull is what a diff calls a file that is not there.
const devNull = "/dev/null"

// explain says what a step does, for a person.
func (d direction) explain(s step) string {
	switch {
	case d == takeover && s.name == StepManager:
		return "sa-controller-manager runs beside the control plane, until it is ready and kube-apiserver calls its webhook"
	case d == takeover && s.name == StepControllerManager:
		return "kube-controller-manager leaves ServiceAccounts and their tokens to it"
	case d == takeover && s.name == StepAPIServer:
		return "kube-apiserver leaves the ServiceAccounts of Pods to its webhook"
	case s.name == StepAPIServer:
		return "kube-apiserver has its ServiceAccount plugin again"
	case s.name == StepControllerManager:
		return "kube-controller-manager has its ServiceAccount controllers again"
	case s.name == StepWebhook:
		return "the webhook is unregistered"
	default:
		return "sa-controller-manager ends, and its two webhook configurations are deleted"
	}
}

// print shows the plan: every step, and what becomes of every file.
func (c *Config) print(d direction, steps []step) {
	for i, s := range steps {
		fmt.Fprintf(c.Out, "%d. %s: %s.\n", i+1, s.name, d.explain(s))
		for _, w := range s.writes {
			if w.path == c.backup(s.name) {
				fmt.Fprintf(c.Out, "The manifest as it is now is kept in %s.\n", w.path)
				continue
			}
			fmt.Fprint(c.Out, w.diff())
		}
	}
}

// diff is a unified diff.
func (w write) diff() string {
	from, to := w.path, w.path
	if w.before == nil {
		from = devNull
	}
	if w.after == nil {
		to = devNull
	}
	text, err := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
		A: diffLines(w.before), B: diffLines(w.after), FromFile: from, ToFile: to, Context: 3,
	})
	if err != nil {
		return fmt.Sprintf("%s changes (%v)\n", w.path, err) // writing to memory does not fail
	}
	return text
}

// diffLines ends every line, so that the last one of a file without a line end does not
// run into the next of the diff.
func diffLines(data []byte) []string {
	var lines []string
	for line := range strings.Lines(string(data)) {
		if !strings.HasSuffix(line, "\n") {
			line += "\n\\ No newline at end of file\n"
		}
		lines = append(lines, line)
	}
	return lines
}
