// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sa-controller-manager/internal/testutil"
)

// What a configuration holds, in the words of the table.
const (
	right   = "right"
	stage   = "stage"   // nothing but the probe
	damage  = "damage"  // right, but for the caBundle
	past    = "past"    // damage that lets the probe through, for mutating with the probe
	passing = "passing" // what is right in the same way
	none    = "none"
)

func contents(o observation, k kind, what string) []entry {
	wanted := o.wanted()[k]
	broken := func() []entry {
		broken := wanted[0].DeepCopy()
		broken.ClientConfig.CABundle = []byte("rubbish")
		return []entry{*broken}
	}
	letting := func(bound []entry) []entry {
		bound = staged(bound)
		if k == mutating {
			bound = append(bound, o.spec.probeEntry(o.caBundle))
		}
		return bound
	}
	switch what {
	case right:
		return wanted
	case stage:
		return []entry{o.spec.probeEntry(o.caBundle)}
	case damage:
		return broken()
	case past:
		return letting(broken())
	case passing:
		return letting(wanted)
	default:
		return nil
	}
}

func TestPlan(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	justNow, minuteAgo := now.Add(-settleDelay/4), now.Add(-time.Minute)
	gone, goneOff := last{deleted: minuteAgo}, last{deleted: minuteAgo, off: true}
	for name, tc := range map[string]struct {
		reason               string
		mutating, validating string // "" for: does not exist
		off                  string // "mutating", "validating"
		deleted              [kinds]last
		unready, proven      bool
		want                 string
	}{
		"first start": {
			reason: "only the probe is registered, the validating one needs no proof of its own", want: "proving; create mutating: stage",
		},
		"staged": {reason: "all is in place", mutating: stage, want: "proving; probe"},
		"proved": {
			reason: "the real rules bind", mutating: stage, proven: true, want: "repairing; update mutating: right; create validating: right",
		},
		"right": {reason: "what is right needs neither proof nor write", mutating: right, validating: right, want: "registered"},
		"damaged before our time": {
			reason:   "a bound webhook stays, and must not block the probe that repairs it",
			mutating: damage, validating: damage, want: "proving; update mutating: past; update validating: past",
		},
		"one damaged before our time": {
			reason:   "a plugin that refuses the probe would be in its way, though its configuration is right",
			mutating: damage, validating: right, want: "proving; update mutating: past; update validating: passing",
		},
		"one deleted before our time": {
			reason:     "the other one stays bound for all but the probe",
			validating: right, want: "proving; create mutating: stage; update validating: passing",
		},
		"off": {reason: "one annotation is enough", mutating: none, validating: none, off: "mutating", proven: true, want: "off"},
		"off in half": {
			reason: "what still binds refuses Pods, and is said", mutating: none, validating: right, off: "mutating", proven: true, want: "off in half",
		},
		"off, then deleted": {
			reason:     "the annotation went with the object and still counts",
			validating: right, deleted: [kinds]last{goneOff}, proven: true, want: "off in half; again mutating, off: none",
		},
		"off, then both deleted": {
			reason:  "a new leader would know of neither",
			deleted: [kinds]last{gone, goneOff}, proven: true, want: "off; again validating, off: none",
		},
		"off, then one of two deleted": {
			reason:     "the other one tells the next leader",
			validating: none, off: "validating", deleted: [kinds]last{goneOff}, proven: true, want: "off",
		},
		"off, deleted just now": {
			reason:  "the client may be about to delete the other one too, or to write it",
			deleted: [kinds]last{{off: true, deleted: justNow}}, want: "off; after 750ms",
		},
		"off without a caBundle": {reason: "break-glass is the first rule", mutating: none, off: "mutating", unready: true, want: "off"},
		"no caBundle":            {reason: "an empty one must not be written", mutating: damage, unready: true, proven: true, want: "waiting"},
		"deleted": {
			reason:  "the user may have thought that this lasts; both come back",
			deleted: [kinds]last{gone, gone}, proven: true, want: "repairing; again mutating: right; again validating: right",
		},
		"deleted just now": {
			reason:     "it may have been switched off before that",
			validating: right, deleted: [kinds]last{{deleted: justNow}}, proven: true, want: "repairing; after 750ms",
		},
		"deleted before the proof": {
			reason: "only the probe is registered", deleted: [kinds]last{gone, gone}, want: "proving; again mutating: stage",
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := observation{last: tc.deleted, spec: urlSpec(), caBundle: []byte("ca"), proven: tc.proven, now: now}
			if tc.unready {
				o.caBundle = nil
			}
			for k, what := range []string{tc.mutating, tc.validating} {
				if what == "" {
					continue
				}
				o.last[k] = last{object: (*object)(nil).with(contents(o, kind(k), what))}
				if tc.off == shortNames()[k] {
					o.last[k].object = o.last[k].object.annotated(AnnotationOff)
				}
			}
			testutil.Check(t, tc.reason, tc.want, describe(o, plan(o)))
		})
	}
}

func shortNames() []string { return []string{"mutating", "validating"} }

// describe puts a decision into the words of the table.
func describe(o observation, decided decision) string {
	words := []string{string(decided.status.State)}
	if strings.Contains(decided.status.Detail, "still binds") {
		words[0] += " in half"
	}
	for _, w := range decided.writes {
		verb, off := "update ", ""
		switch {
		case w.again:
			verb = "again "
		case o.last[w.kind].object == nil:
			verb = "create "
		}
		if w.off {
			off = ", off"
		}
		words = append(words, verb+shortNames()[w.kind]+off+": "+contentName(o, w))
	}
	if decided.probe {
		words = append(words, "probe")
	}
	if decided.after > 0 {
		words = append(words, "after "+decided.after.String())
	}
	return strings.Join(words, "; ")
}

func contentName(o observation, w write) string {
	for _, name := range []string{right, stage, damage, past, passing, none} {
		if cmp.Equal(contents(o, w.kind, name), w.entries) {
			return name
		}
	}
	return "something else"
}
