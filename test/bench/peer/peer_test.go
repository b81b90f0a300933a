// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseAudit(t *testing.T) {
	t.Parallel()
	log := `{"verb":"patch","objectRef":{"resource":"secrets"}}
{"verb":"patch","objectRef":{"resource":"secrets"}}
{"verb":"watch","objectRef":{"resource":"secrets"}}
{"verb":"create","objectRef":{"resource":"serviceaccounts","subresource":"token"}}
{"verb":"update","objectRef":{"resource":"leases"}}
{"verb":"get"}
{"verb":"delete","objectRef":{"resource":"sec`
	got, err := parseAudit(strings.NewReader(log))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(counts{"patch secrets": 2, "create serviceaccounts/token": 1}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if _, err := parseAudit(strings.NewReader("no JSON\n")); err == nil {
		t.Error("a log that is none was read")
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	good := Options{Repetitions: 1, Namespaces: 1, Secrets: 2, Accounts: 2, Foreign: 1, PodCount: 1}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*Options){
		"NoRepetition":    func(o *Options) { o.Repetitions = 0 },
		"NegativePods":    func(o *Options) { o.PodCount = -1 },
		"TooManyAccounts": func(o *Options) { o.Accounts = 3 },
	} {
		bad := good
		change(&bad)
		if err := bad.Validate(); err == nil {
			t.Errorf("%s: %+v was accepted", name, bad)
		}
	}
}
