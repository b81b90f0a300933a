// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"sa-controller-manager/internal/testutil"
)

// FuzzPlan lets anybody write anything into the two configurations. Who has switched the webhook
// off gets no webhook. Before the proof nothing is bound that was not; after it everything is as it
// should be, and nothing is left to do.
func FuzzPlan(f *testing.F) {
	o := observation{spec: urlSpec(), caBundle: []byte("ca"), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	encode := func(entries []entry) []byte {
		encoded, err := json.Marshal(entries)
		testutil.Must(f, err)
		return encoded
	}
	for _, what := range []string{right, stage, damage, past, passing, none} {
		f.Add(encode(contents(o, mutating, what)), encode(contents(o, validating, what)), "", true, true)
		f.Add(encode(contents(o, mutating, what)), encode(contents(o, validating, none)), AnnotationOff, true, false)
	}
	f.Add([]byte(`[{"name":"probe.sa-controller-manager"},{"matchConditions":[{"name":"except-the-probe"}]},null]`), []byte(`[{}]`), "OFF",
		false, true)
	f.Fuzz(func(t *testing.T, mutatingJSON, validatingJSON []byte, annotation string, exists, validatingExists bool) {
		var m admissionregistrationv1.MutatingWebhookConfiguration
		var v admissionregistrationv1.ValidatingWebhookConfiguration
		if json.Unmarshal(mutatingJSON, &m.Webhooks) != nil || json.Unmarshal(validatingJSON, &v.Webhooks) != nil {
			t.Skip()
		}
		m.Annotations = map[string]string{Annotation: annotation}
		given := o
		if exists {
			given.last[mutating].object = asObject(&m)
		}
		if validatingExists {
			given.last[validating].object = asObject(&v)
		}
		if annotation == AnnotationOff && exists {
			for _, proven := range []bool{false, true} {
				given.proven = proven
				if d := plan(given); len(d.writes) > 0 || d.probe || d.status.State != Off {
					t.Fatalf("switched off, and %+v", d)
				}
			}
			return
		}
		before := given.last
		proved := settled(t, given)
		for k := range kinds {
			for _, one := range proved.last[k].object.webhooks() {
				was := func(e entry) bool { return e.Name == one.Name }
				if one.Name != probeName && !slices.ContainsFunc(before[k].object.webhooks(), was) {
					t.Errorf("%q is bound before the proof", one.Name)
				}
			}
		}
		proved.proven = true
		final := settled(t, proved)
		wanted := final.wanted()
		for k := range kinds {
			if !final.right(k, wanted) {
				t.Errorf("the %s is left with %+v", k, final.last[k].object.webhooks())
			}
		}
	})
}

// settled does what is planned until nothing is.
func settled(t *testing.T, o observation) observation {
	t.Helper()
	for range 3 {
		decided := plan(o)
		if len(decided.writes) == 0 {
			if !o.proven && !decided.probe && decided.status.State != Registered {
				t.Fatalf("nothing is written and nothing is probed: %+v", decided)
			}
			return o
		}
		for _, w := range decided.writes {
			if w.off {
				t.Fatal("it switches itself off")
			}
			o.last[w.kind].object = &object{exists: true, entries: w.entries}
		}
	}
	t.Fatalf("there is always something to write: %+v", plan(o))
	return o
}
