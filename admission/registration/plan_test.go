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
		"off": {reason: "one annotation is enough", mutating: none, validating: right, off: "mutating", proven: true, want: "off"},
		"off, then deleted": {
			reason:     "the annotation went with the object and still counts",
			validating: right, deleted: [kinds]last{{existed: true, off: true}}, proven: true, want: "off; again mutating, off: none",
		},
		"off, then both deleted": {
			reason:  "a new leader would know of neither",
			deleted: [kinds]last{{existed: true}, {existed: true, off: true}}, proven: true, want: "off; again validating, off: none",
		},
		"off, then one of two deleted": {
			reason:     "the other one tells the next leader",
			validating: none, off: "validating", deleted: [kinds]last{{existed: true, off: true}}, proven: true, want: "off",
		},
		"off, deleted just now": {
			reason:  "the client may be about to delete the other one too, or to write it",
			deleted: [kinds]last{{existed: true, off: true, deleted: justNow}}, want: "off; after 750ms",
		},
		"off, deleted again": {
			reason:  "another client wants it away, and this process knows why",
			deleted: [kinds]last{{existed: true, off: true, recreated: minuteAgo}}, want: "off; after 4m0s",
		},
		"off, made again, not yet told": {
			reason:     "the watch is about to tell; nothing binds until then, and the live read before the write finds it",
			validating: right, deleted: [kinds]last{{off: true, recreated: now}}, proven: true, want: "off; create mutating, off: none",
		},
		"off without a caBundle": {reason: "break-glass is the first rule", mutating: none, off: "mutating", unready: true, want: "off"},
		"no caBundle":            {reason: "an empty one must not be written", mutating: damage, unready: true, proven: true, want: "waiting"},
		"deleted": {
			reason:  "the user may have thought that this lasts; both come back",
			deleted: [kinds]last{{existed: true}, {existed: true}}, proven: true, want: "repairing; again mutating: right; again validating: right",
		},
		"deleted just now": {
			reason:     "it may have been switched off before that",
			validating: right, deleted: [kinds]last{{existed: true, deleted: justNow}}, proven: true, want: "repairing; after 750ms",
		},
		"deleted again": {
			reason:     "not within five minutes; the other one is repaired all the same",
			validating: damage, deleted: [kinds]last{{existed: true, recreated: minuteAgo}}, proven: true,
			want: "deleted; update validating: right; after 4m0s",
		},
		"deleted again before the proof": {
			reason: "nor is the probe registered", deleted: [kinds]last{{existed: true, recreated: minuteAgo}}, want: "deleted; after 4m0s",
		},
		"deleted again long ago": {
			reason:     "after five minutes",
			validating: right, deleted: [kinds]last{{existed: true, recreated: now.Add(-recreateInterval)}}, proven: true,
			want: "repairing; again mutating: right",
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
				o.last[k].object = (*object)(nil).with(contents(o, kind(k), what))
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
	for _, w := range decided.writes {
		verb, off := "update ", ""
		switch {
		case w.again:
			verb = "again "
		case w.create:
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
