// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"strings"
	"testing"

	"go.uber.org/goleak"
	"sa-controller-manager/internal/testutil"
)

// TestComplaintsFindsErrors: a row that it takes for noise would hide a fault of the product.
func TestComplaintsFindsErrors(t *testing.T) {
	t.Parallel()
	want := []string{
		`E1121 11:03:59.883642   21239 run.go:1] "A"`,
		`E1121 request.go:1196] "Unexpected error when reading response body" err="unexpected EOF"`,
	}
	printed := "I1121 first line\n" + strings.Join(want, "\n") + "\nI1121 last line\n"
	testutil.Check(t, "result", want, Complaints(printed))
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
