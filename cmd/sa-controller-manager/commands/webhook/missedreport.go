// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/sets"

	"sa-controller-manager/admission/podscan"
	"sa-controller-manager/internal/printers"
)

// missedReport is the output of "webhook missed".
type missedReport struct {
	printers.Head
	Missed    []missedPod   `json:"missed"`
	Uncertain []podscan.Pod `json:"uncertain"`

	read int
}

type missedPod struct {
	podscan.Pod
	podscan.Remedy
}

func newMissedReport(found podscan.Found, flags string) *missedReport {
	report := &missedReport{
		Head:      printers.Of("MissedPods"),
		Missed:    make([]missedPod, len(found.Missed)),
		Uncertain: append([]podscan.Pod{}, found.Uncertain...),
		read:      found.Looked,
	}
	for i, remedy := range podscan.Remedies(found.Missed, flags) {
		report.Missed[i] = missedPod{found.Missed[i], remedy}
	}
	return report
}

func (r *missedReport) print(w io.Writer, output string, now time.Time) error {
	return printers.Document(w, output, r, func() string { return r.table(now) + r.remedies() })
}

// table returns the table of Pods, empty without Pods, as kubectl does.
func (r *missedReport) table(now time.Time) string {
	if len(r.Missed)+len(r.Uncertain) == 0 {
		return ""
	}
	var b strings.Builder
	table := printers.Table(&b)
	fmt.Fprintln(table, "NAMESPACE\tPOD\tOWNER\tNODE\tAGE\tMISSING")
	for i := range r.Missed {
		fmt.Fprintln(table, missedRow(&r.Missed[i].Pod, now))
	}
	for i := range r.Uncertain {
		fmt.Fprintln(table, missedRow(&r.Uncertain[i], now)+" (uncertain)")
	}
	table.Flush()
	return b.String()
}

func missedRow(pod *podscan.Pod, now time.Time) string {
	owner := "<none>"
	if pod.Owner != nil {
		owner = pod.Owner.String()
	}
	age := duration.HumanDuration(now.Sub(pod.Created.Time))
	return strings.Join([]string{pod.Namespace, pod.Name, owner, cmp.Or(pod.Node, "<none>"), age, pod.Lacks()}, "\t")
}

// remedies returns the command lines, one for each owner, and the Pods without one.
func (r *missedReport) remedies() string {
	var lines, rest strings.Builder
	typed := sets.New[string]()
	for i := range r.Missed {
		pod := &r.Missed[i]
		switch {
		case pod.Command == "":
			fmt.Fprintf(&rest, "%s: %s\n", pod.Pod.String(), pod.Note)
			continue
		case typed.Has(pod.Command):
			continue
		case pod.Note != "":
			fmt.Fprintf(&lines, "%s  # %s\n", pod.Command, pod.Note)
		default:
			fmt.Fprintln(&lines, pod.Command)
		}
		typed.Insert(pod.Command)
	}
	return titled("To have their controllers create them again:", lines.String()) +
		titled("Pods that no known controller creates again:", rest.String())
}

func titled(title, lines string) string {
	if lines == "" {
		return ""
	}
	return "\n" + title + "\n" + lines
}

// summary returns one line for the user, for every output format.
func (r *missedReport) summary() string {
	text := fmt.Sprintf("%d of %d Pods were admitted without the webhook.", len(r.Missed), r.read)
	if len(r.Missed) == 0 {
		text = fmt.Sprintf("None of %d Pods was admitted without the webhook.", r.read)
	}
	if n := len(r.Uncertain); n > 0 {
		text += fmt.Sprintf(" %d more are uncertain, because their account was changed after they were created.", n)
	}
	return text
}
