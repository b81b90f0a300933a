// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"sa-controller-manager/internal/testutil"
)

func TestRepairs(t *testing.T) {
	changed := func(change func(*entry)) func(*object) *object {
		return func(o *object) *object {
			one := *o.entries[0].DeepCopy()
			change(&one)
			return o.with([]entry{one})
		}
	}
	for name, harm := range map[string]func(*object) *object{
		"caBundle": changed(func(e *entry) { e.ClientConfig.CABundle = []byte("rubbish") }),
		"policy":   changed(func(e *entry) { e.FailurePolicy = new(admissionregistrationv1.Ignore) }),
		"emptied":  func(o *object) *object { return o.with(nil) },
		"another webhook": func(o *object) *object {
			other := *o.entries[0].DeepCopy()
			other.Name = "other.example.org"
			return o.with(append(slices.Clone(o.entries), other))
		},
	} {
		for _, owner := range []string{"its first owner", "a new leader"} { // which has proved nothing yet
			t.Run(name+" by "+owner, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a := newAPIServer(t)
					var want [kinds][]entry
					want[mutating], want[validating] = urlSpec().entries(a.accepted)
					if owner == "a new leader" {
						for k := range kinds {
							testutil.Must(t, k.in(a).put(t.Context(), harm((*object)(nil).with(want[k]))))
						}
					}
					r := run(t, a)
					pause(2 * time.Second)
					if owner == "its first owner" {
						for k := range kinds {
							a.change(t, k, harm)
						}
						synctest.Wait()
					}
					wantState(t, r, Registered)
					for k := range kinds {
						o, err := k.in(a).get(t.Context())
						testutil.Must(t, err)
						testutil.Check(t, k.String(), want[k], o.entries)
					}
				})
			})
		}
	}
}
