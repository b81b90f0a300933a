// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

func TestRegisteredDiffers(t *testing.T) {
	t.Parallel()
	well := func() registered {
		client := admissionregistrationv1.WebhookClientConfig{URL: new("https://127.0.0.1:10258/"), CABundle: []byte("CA")}
		rules := []admissionregistrationv1.RuleWithOperations{{Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create}}}
		return registered{
			Mutating:   []admissionregistrationv1.MutatingWebhook{{Name: "mutate", ClientConfig: client, Rules: rules}},
			Validating: []admissionregistrationv1.ValidatingWebhook{{Name: "validate", ClientConfig: client, FailurePolicy: new(admissionregistrationv1.Fail)}},
		}
	}
	cases := map[string]struct {
		reason string
		edit   func(*registered)
		want   []string
	}{
		"NewBundles": {reason: "they only have to be good", edit: func(r *registered) { r.Mutating[0].ClientConfig.CABundle = []byte("new") }},
		"Emptied":    {edit: func(r *registered) { r.Validating = nil }, want: []string{"there are 0 validating webhooks, want 1"}},
		"URL":        {edit: func(r *registered) { r.Validating[0].ClientConfig.URL = new("https://127.0.0.1:1/") }, want: []string{"validating clientConfig"}},
		"Operations": {reason: "there are as many rules", edit: func(r *registered) { r.Mutating[0].Rules[0].Operations = nil }, want: []string{"mutating rules"}},
		"Removed":    {edit: func(r *registered) { r.Validating[0].FailurePolicy = nil }, want: []string{"validating failurePolicy"}},
		"Added": {edit: func(r *registered) {
			r.Mutating[0].ReinvocationPolicy = new(admissionregistrationv1.NeverReinvocationPolicy)
		}, want: []string{"mutating reinvocationPolicy"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := well()
			tc.edit(&now)
			if diff := cmp.Diff(tc.want, now.differs(well())); diff != "" {
				t.Errorf("%s\nwhat differs (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
