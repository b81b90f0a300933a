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
