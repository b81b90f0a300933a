// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"

	"sa-controller-manager/admission/registration"
)

// What is wrong with the registration is told once.
func TestRegistrationLine(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		status registration.Status
		want   string
	}{
		"Failing":    {registration.Status{State: registration.Proving, Detail: "nobody listens"}, "failed: proving: nobody listens"},
		"Registered": {registration.Status{State: registration.Registered, Detail: "https://h:1"}, "ok: registered: https://h:1"},
		"Off":        {registration.Status{State: registration.Off, Detail: "annotation"}, "ok: off: annotation"},
		"Idle":       {registration.Status{State: registration.Idle}, "ok: idle"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			detail, err := registrationProbe(tc.status)
			got := "ok: " + detail
			if err != nil {
				got = "failed: " + err.Error()
			}
			if got != tc.want {
				t.Errorf("got  %q\nwant %q", got, tc.want)
			}
		})
	}
}
