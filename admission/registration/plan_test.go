// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
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
	type world struct {
		mutating, validating string // "" for: does not exist
		off                  string // "mutating", "validating"
		deleted              [kinds]last
		unready, proven      bool
	}
	type outcome struct {
		State  State
		Writes map[string]string
		Probe  bool
		After  time.Duration
	}
	gone := [kinds]last{{existed: true}, {existed: true}}
	goneAgain := [kinds]last{{existed: true, recreated: now.Add(-time.Minute)}, {}}
	for name, tc := range map[string]struct {
		reason string
		world  world
		want   outcome
	}{
		"first start": {
			reason: "only the probe is registered, the validating one needs no proof of its own",
			want:   outcome{State: Proving, Writes: map[string]string{"create mutating": stage}},
		},
		"staged": {
			reason: "all is in place",
			world:  world{mutating: stage},
			want:   outcome{State: Proving, Probe: true},
		},
		"proved": {
			reason: "the real rules bind",
			world:  world{mutating: stage, proven: true},
			want:   outcome{State: Repairing, Writes: map[string]string{"update mutating": right, "create validating": right}},
		},
		"right": {
			reason: "what is right needs neither proof nor write",
			world:  world{mutating: right, validating: right},
			want:   outcome{State: Registered},
		},
		"damaged before our time": {
			reason: "a bound webhook stays, and must not block the probe that repairs it",
			world:  world{mutating: damage, validating: damage},
			want:   outcome{State: Proving, Writes: map[string]string{"update mutating": past, "update validating": past}},
		},
		"one damaged before our time": {
			reason: "a plugin that refuses the probe would be in its way, though its configuration is right",
			world:  world{mutating: damage, validating: right},
			want:   outcome{State: Proving, Writes: map[string]string{"update mutating": past, "update validating": passing}},
		},
		"one deleted before our time": {
			reason: "the other one stays bound for all but the probe",
			world:  world{validating: right},
			want:   outcome{State: Proving, Writes: map[string]string{"create mutating": stage, "update validating": passing}},
		},
		"off": {
			reason: "one annotation is enough",
			world:  world{mutating: none, validating: right, off: "mutating", proven: true},
			want:   outcome{State: Off},
		},
		"off, then deleted": {
			reason: "the annotation went with the object and still counts",
			world:  world{validating: right, deleted: [kinds]last{{existed: true, off: true}, {}}, proven: true},
			want:   outcome{State: Off, Writes: map[string]string{"again mutating, off": none}},
		},
		"off, then both deleted": {
			reason: "a new leader would know of neither",
			world:  world{deleted: [kinds]last{{existed: true}, {existed: true, off: true}}, proven: true},
			want:   outcome{State: Off, Writes: map[string]string{"again validating, off": none}},
		},
		"off, then one of two deleted": {
			reason: "the other one tells the next leader",
			world:  world{validating: none, off: "validating", deleted: [kinds]last{{existed: true, off: true}, {}}, proven: true},
			want:   outcome{State: Off},
		},
		"off, deleted just now": {
			reason: "the client may be about to delete the other one too, or to write it",
			world:  world{deleted: [kinds]last{{existed: true, off: true, deleted: now.Add(-settleDelay / 4)}, {}}},
			want:   outcome{State: Off, After: settleDelay * 3 / 4},
		},
		"off, deleted again": {
			reason: "somebody wants it away, and this process knows why",
			world:  world{deleted: [kinds]last{{existed: true, off: true, recreated: now.Add(-time.Minute)}, {}}},
			want:   outcome{State: Off, After: 4 * time.Minute},
		},
		"off, made again, not yet told": {
			reason: "the watch is about to tell; nothing binds until then, and the live read before the write finds it",
			world:  world{validating: right, deleted: [kinds]last{{off: true, recreated: now}, {}}, proven: true},
			want:   outcome{State: Off, Writes: map[string]string{"create mutating, off": none}},
		},
		"off without a caBundle": {
			reason: "break-glass is the first rule",
			world:  world{mutating: none, off: "mutating", unready: true},
			want:   outcome{State: Off},
		},
		"no caBundle": {
			reason: "an empty one must not be written",
			world:  world{mutating: damage, unready: true, proven: true},
			want:   outcome{State: Waiting},
		},
		"deleted": {
			reason: "somebody may have thought that this lasts; both come back",
			world:  world{deleted: gone, proven: true},
			want:   outcome{State: Repairing, Writes: map[string]string{"again mutating": right, "again validating": right}},
		},
		"deleted just now": {
			reason: "it may have been switched off before that",
			world:  world{validating: right, deleted: [kinds]last{{existed: true, deleted: now.Add(-settleDelay / 4)}, {}}, proven: true},
			want:   outcome{State: Repairing, After: settleDelay * 3 / 4},
		},
		"deleted again": {
			reason: "not within five minutes; the other one is repaired all the same",
			world:  world{validating: damage, deleted: goneAgain, proven: true},
			want:   outcome{State: Deleted, Writes: map[string]string{"update validating": right}, After: 4 * time.Minute},
		},
		"deleted again before the proof": {
			reason: "nor is the probe registered",
			world:  world{deleted: goneAgain},
			want:   outcome{State: Deleted, After: 4 * time.Minute},
		},
		"deleted again long ago": {
			reason: "after five minutes",
			world:  world{validating: right, deleted: [kinds]last{{existed: true, recreated: now.Add(-recreateInterval)}, {}}, proven: true},
			want:   outcome{State: Repairing, Writes: map[string]string{"again mutating": right}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := observation{
				last: tc.world.deleted, spec: urlSpec(), caBundle: []byte("ca"),
				proven: tc.world.proven, now: now,
			}
			if tc.world.unready {
				o.caBundle = nil
			}
			for k, what := range []string{tc.world.mutating, tc.world.validating} {
				short := []string{"mutating", "validating"}[k]
				if what == "" {
					continue
				}
				o.last[k].object = (*object)(nil).with(contents(o, kind(k), what))
				if tc.world.off == short {
					o.last[k].object = o.last[k].object.annotated(AnnotationOff)
				}
			}
			decided := plan(o)
			got := outcome{State: decided.status.State, Probe: decided.probe, After: decided.after}
			for _, w := range decided.writes {
				if got.Writes == nil {
					got.Writes = map[string]string{}
				}
				got.Writes[describe(w)] = contentName(o, w)
			}
			testutil.Check(t, tc.reason, tc.want, got)
		})
	}
}

func describe(w write) string {
	short := []string{"mutating", "validating"}[w.kind]
	if w.off {
		short += ", off"
	}
	switch {
	case w.again:
		return "again " + short
	case w.create:
		return "create " + short
	default:
		return "update " + short
	}
}

func contentName(o observation, w write) string {
	for _, name := range []string{right, stage, damage, past, passing, none} {
		if cmp.Equal(contents(o, w.kind, name), w.entries) {
			return name
		}
	}
	return "something else"
}
