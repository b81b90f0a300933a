// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/internal/testutil"
)

// step is one thing that happens in a case: time passes, or a note is given to the recorder.
type step struct {
	wait   time.Duration
	about  *corev1.ObjectReference
	reason string
	note   string
	times  int // with the number behind the note; 0 is once and without
}

func say(about *corev1.ObjectReference, note string) step {
	return step{about: about, reason: "Refused", note: note}
}

func sayMany(about *corev1.ObjectReference, note string, times int) step {
	return step{about: about, reason: "Refused", note: note, times: times}
}

func passing(d time.Duration) step { return step{wait: d} }

func TestLimits(t *testing.T) {
	t.Parallel()
	another := func(change func(*corev1.ObjectReference)) *corev1.ObjectReference {
		ref := secret("a")
		change(ref)
		return ref
	}
	cases := map[string]struct {
		reason string
		steps  []step
		want   []string // object and note
	}{
		"Once":       {steps: []step{say(secret("a"), "x")}, want: []string{"a x"}},
		"Fresh":      {reason: "it was recorded a moment ago", steps: []step{say(secret("a"), "x"), say(secret("a"), "x"), passing(time.Hour - 1), say(secret("a"), "x")}, want: []string{"a x"}},
		"StaleAgain": {reason: "a standing problem is recorded each hour", steps: []step{say(secret("a"), "x"), passing(time.Hour), say(secret("a"), "x"), say(secret("a"), "x")}, want: []string{"a x", "a x"}},
		"RepetitionDoesNotRefresh": {
			reason: "the hour counts from the first record",
			steps:  []step{say(secret("a"), "x"), passing(30 * time.Minute), say(secret("a"), "x"), passing(30 * time.Minute), say(secret("a"), "x")},
			want:   []string{"a x", "a x"},
		},
		"OtherNote":   {steps: []step{say(secret("a"), "x"), say(secret("a"), "y"), say(secret("a"), "x")}, want: []string{"a x", "a y"}},
		"OtherReason": {steps: []step{say(secret("a"), "x"), {about: secret("a"), reason: "Deleted", note: "x"}}, want: []string{"a x", "a x"}},
		"NoMixUp":     {reason: "reason and note are two words", steps: []step{{about: secret("a"), reason: "Re", note: "fused"}, {about: secret("a"), reason: "Ref", note: "used"}}, want: []string{"a fused", "a used"}},

		"Burst":            {reason: "an object has five at once", steps: []step{sayMany(secret("a"), "x", 8)}, want: []string{"a x0", "a x1", "a x2", "a x3", "a x4"}},
		"RepetitionIsFree": {reason: "a dropped Event costs nothing", steps: []step{say(secret("a"), "x"), say(secret("a"), "x"), say(secret("a"), "x"), sayMany(secret("a"), "x", 5)}, want: []string{"a x", "a x0", "a x1", "a x2", "a x3"}},
		"Refill":           {reason: "and one more every five minutes", steps: []step{sayMany(secret("a"), "x", 5), passing(5*time.Minute - time.Second), say(secret("a"), "early"), passing(time.Second), sayMany(secret("a"), "y", 2)}, want: []string{"a x0", "a x1", "a x2", "a x3", "a x4", "a y0"}},
		"RefillHasACap":    {steps: []step{say(secret("a"), "x"), passing(48 * time.Hour), sayMany(secret("a"), "y", 8)}, want: []string{"a x", "a y0", "a y1", "a y2", "a y3", "a y4"}},
		"DroppedIsNotTold": {reason: "a note that the budget dropped is recorded later", steps: []step{sayMany(secret("a"), "x", 6), passing(5 * time.Minute), say(secret("a"), "x5")}, want: []string{"a x0", "a x1", "a x2", "a x3", "a x4", "a x5"}},
		"OthersUnaffected": {steps: []step{sayMany(secret("a"), "x", 9), say(secret("b"), "x0"), say(secret("a"), "y")}, want: []string{"a x0", "a x1", "a x2", "a x3", "a x4", "b x0"}},
		"Namesakes": {
			reason: "the same name is not the same object",
			steps: []step{
				say(secret("a"), "x"),
				say(another(func(r *corev1.ObjectReference) { r.UID = "of the next a" }), "x"),
				say(another(func(r *corev1.ObjectReference) { r.Namespace = "bank" }), "x"),
				say(another(func(r *corev1.ObjectReference) { r.Kind = "ServiceAccount" }), "x"),
			},
			want: []string{"a x", "a x", "a x", "a x"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			recorder, told, clock := limited()
			for _, s := range tc.steps {
				clock.Step(s.wait)
				if s.about == nil {
					continue
				}
				if s.times == 0 {
					recorder.Warn(s.about, s.reason, "Try", s.note)
				}
				for i := range s.times {
					recorder.Warn(s.about, s.reason, "Try", s.note+strconv.Itoa(i))
				}
			}
			got := []string{}
			for _, line := range told.Lines() {
				object, rest, _ := strings.Cut(line, ": ")
				_, note, _ := strings.Cut(rest, ": ")
				got = append(got, object+" "+note)
			}
			testutil.Check(t, tc.reason+": Events", tc.want, got)
		})
	}
}

func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	recorder, told, clock := limited()
	recorder.Warn(secret("kept"), "Refused", "Try", "x")
	recorder.Warn(secret("forgotten"), "Refused", "Try", "x")
	for i := range limitedObjects {
		recorder.Warn(secret("kept"), "Refused", "Try", "x") // seen again and again, so never the oldest
		recorder.Warn(secret(fmt.Sprint("other-", i)), "Refused", "Try", "x")
	}
	if got := recorder.limiter.seen.Len(); got != limitedObjects {
		t.Errorf("%d objects are remembered, want %d", got, limitedObjects)
	}
	before := len(told.Lines())
	recorder.Warn(secret("kept"), "Refused", "Try", "x")
	recorder.Warn(secret("forgotten"), "Refused", "Try", "x")
	testutil.Check(t, "Events", []string{"forgotten: Warning Refused Try: x"}, told.Lines()[before:])

	for i := range 200 {
		clock.Step(5 * time.Minute)
		recorder.Warn(secret("kept"), "Refused", "Try", fmt.Sprint("note ", i))
	}
	most := burst + int(repeatAfter/interval)
	if got := len(recorder.limiter.historyOf(objectKey(secret("kept"))).sent); got > most {
		t.Errorf("%d notes of one object are remembered, want %d at most", got, most)
	}
}

func TestLongNotesAreCut(t *testing.T) {
	t.Parallel()
	const head = "a: Warning Refused Try: "
	cases := map[string]struct{ note, want string }{
		"Fits":        {note: strings.Repeat("x", 1024), want: strings.Repeat("x", 1024)},
		"TooLong":     {note: strings.Repeat("x", 1025), want: strings.Repeat("x", 1021) + "..."},
		"WayTooLong":  {note: strings.Repeat("x", 256<<10), want: strings.Repeat("x", 1021) + "..."},
		"InALetter":   {note: strings.Repeat("ä", 600), want: strings.Repeat("ä", 510) + "..."},
		"InAnEmoji":   {note: strings.Repeat("🔑", 300), want: strings.Repeat("🔑", 255) + "..."},
		"NotAFormat":  {note: "100%s of %d", want: "100%s of %d"},
		"Empty":       {note: "", want: ""},
		"BetweenThem": {note: "x" + strings.Repeat("ä", 600), want: "x" + strings.Repeat("ä", 510) + "..."},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			recorder, told, _ := limited()
			recorder.Warn(secret("a"), "Refused", "Try", tc.note)
			testutil.Check(t, "Events", []string{head + tc.want}, told.Lines())
			if len(tc.want) > noteLimit || !utf8.ValidString(tc.want) {
				t.Errorf("the case itself wants what the API refuses")
			}
		})
	}
}

func TestANilRecorderDropsAll(t *testing.T) {
	t.Parallel()
	var recorder *Recorder
	recorder.Warn(secret("a"), "Refused", "Try", "x")
	recorder.Normal(secret("a"), "Deleted", "Delete", "x")
}
