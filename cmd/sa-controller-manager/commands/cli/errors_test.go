// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"testing"

	"sa-controller-manager/internal/testutil"
)

func TestInvalidFlags(t *testing.T) {
	t.Parallel()
	one, other := errors.New("--a b"), errors.New("--c d")
	for want, problems := range map[string][]error{
		"<nil>": nil, "--a b": {one}, "2 problems with the flags:\n  --a b\n  --c d": {one, other},
	} {
		testutil.Check(t, "error", want, fmt.Sprint(InvalidFlags("cmd", problems)))
	}
}
