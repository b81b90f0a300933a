// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"sa-controller-manager/internal/testutil"
)

func TestRepairs(t *testing.T) {
	damaged := func(o *object) *object {
		broken := o.with(nil)
		for _, one := range o.entries {
			one = *one.DeepCopy()
			one.ClientConfig.CABundle = []byte("rubbish")
			broken.entries = append(broken.entries, one)
		}
		return broken
	}
	for name, harm := range map[string]func(*object) *object{
		"caBundle": damaged,
		"emptied":  func(o *object) *object { return o.with(nil) },
		"policy": func(o *object) *object {
			o = o.with([]entry{*o.entries[0].DeepCopy()})
			ignore := admissionregistrationv1.Ignore
			o.entries[0].FailurePolicy = &ignore
			return o
		},
		"another webhook": func(o *object) *object {
			other := *o.entries[0].DeepCopy()
			other.Name = "other.example.org"
			return o.with(append(slices.Clone(o.entries), other))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAPIServer(t)
				r := run(t, a)
				pause(time.Second)
				for k := range kinds {
					a.change(t, k, harm)
				}
				synctest.Wait()
				a.expect(t, "repaired by its first owner", "mutate", "validate")
				wantState(t, r, Registered)
				for k := range kinds {
					o, err := k.in(a).get(t.Context())
					if err != nil || *o.entries[0].FailurePolicy != admissionregistrationv1.Fail {
						t.Errorf("%s: the policy is not repaired, %v", k, err)
					}
				}
			})
			// A new leader has proved nothing yet, and what is damaged is in its way.
			synctest.Test(t, func(t *testing.T) {
				a := newAPIServer(t)
				m, v := urlSpec().entries(a.accepted)
				for k, entries := range [][]entry{m, v} {
					o := (*object)(nil).with(entries)
					testutil.Must(t, kind(k).in(a).put(t.Context(), harm(o)))
				}
				r := run(t, a)
				pause(2 * time.Second)
				a.expect(t, "repaired by a new leader", "mutate", "validate")
				wantState(t, r, Registered)
			})
		})
	}
}

// A correct webhook may refuse the probe of a new leader, which has to repair the other one.
func TestRepairsOneBesideOneThatRefuses(t *testing.T) {
	for name, harm := range map[string]func(*testing.T, *apiserver){
		"deleted": func(*testing.T, *apiserver) {},
		"emptied": func(t *testing.T, a *apiserver) {
			testutil.Must(t, mutating.in(a).put(t.Context(), (*object)(nil).with(nil)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAPIServer(t)
				a.invalid = apierrors.NewForbidden(corev1.Resource("pods"), "probe", errors.New("pod.Spec.SecurityContext.RunAsUser is forbidden"))
				_, entries := urlSpec().entries(a.accepted)
				testutil.Must(t, validating.in(a).put(t.Context(), (*object)(nil).with(entries)))
				harm(t, a)
				r := run(t, a)
				pause(2 * time.Second)
				a.expect(t, "repaired", "mutate", "validate")
				wantState(t, r, Registered)
				o, err := validating.in(a).get(t.Context())
				if err != nil || slices.ContainsFunc(o.entries, exempt) {
					t.Errorf("the way past the validating one has stayed: %v, %v", o, err)
				}
			})
		})
	}
}
