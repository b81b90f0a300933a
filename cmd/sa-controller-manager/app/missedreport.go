// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"sa-controller-manager/admission/podscan"
	"sa-controller-manager/internal/printers"
)

// missedReport is what "webhook missed" prints.
type missedReport struct {
	Missed    []missedPod   `json:"missed"`
	Uncertain []podscan.Pod `json:"uncertain"`

	looked int
}

type missedPod struct {
	podscan.Pod

	// Result is there with --recreate, unless that ended before this Pod.
	Result *podscan.Result `json:"result,omitempty"`
}

func newMissedReport(found podscan.Found) *missedReport {
	report := &missedReport{Missed: []missedPod{}, Uncertain: append([]podscan.Pod{}, found.Uncertain...), looked: found.Looked}
	for _, pod := range found.Missed {
		report.Missed = append(report.Missed, missedPod{Pod: pod})
	}
	return report
}

func (r *missedReport) print(w io.Writer, output string, now time.Time) error {
	return printers.Document(w, output, "the Pods", r, func() string { return r.table(now) })
}

// table is empty without Pods, as that of kubectl.
func (r *missedReport) table(now time.Time) string {
	if len(r.Missed)+len(r.Uncertain) == 0 {
		return ""
	}
	var b strings.Builder
	table := printers.Table(&b)
	recreated := len(r.Missed) > 0 && r.Missed[0].Result != nil
	header := "NAMESPACE\tPOD\tOWNER\tNODE\tAGE\tMISSING"
	if recreated {
		header += "\tRESULT"
	}
	fmt.Fprintln(table, header)
	for i := range r.Missed {
		row := missedRow(&r.Missed[i].Pod, now)
		if result := r.Missed[i].Result; recreated && result != nil {
			row += "\t" + result.String()
		}
		fmt.Fprintln(table, row)
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

// remain is how many Pods lack something.
func (r *missedReport) remain() int {
	n := 0
	for i := range r.Missed {
		if result := r.Missed[i].Result; result == nil || !result.Healed() {
			n++
		}
	}
	return n
}

// summary is one line for people, whatever the output's format.
func (r *missedReport) summary(o *missedOptions) string {
	remain := r.remain()
	text := fmt.Sprintf("%d of %d Pods were admitted without the webhook.", len(r.Missed), r.looked)
	switch {
	case len(r.Missed) == 0:
		text = fmt.Sprintf("None of %d Pods was admitted without the webhook.", r.looked)
	case !o.recreate:
		text += " To have them created anew: the same command with --recreate."
	case o.dryRun:
		text += " Nothing was changed."
	default:
		text = fmt.Sprintf("%d of %d Pods are replaced, %d still lack something.", len(r.Missed)-remain, len(r.Missed), remain)
	}
	if n := len(r.Uncertain); n > 0 {
		text += fmt.Sprintf(" Uncertain, because their account was changed after they were created: %d.", n)
	}
	return text
}
