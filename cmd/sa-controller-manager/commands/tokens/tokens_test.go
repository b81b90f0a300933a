// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokens

import (
	"strings"
	"testing"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
	"sa-controller-manager/internal/testutil"
)

// TestTokensAreNoArguments, and are not repeated in the refusal.
func TestTokensAreNoArguments(t *testing.T) {
	t.Parallel()
	token := clitest.LegacyToken(t)
	for name, args := range map[string][]string{
		"inspect": {"inspect", token}, "parent": {token}, "header": {"inspect", "Bearer", token},
		"quoted header": {"inspect", "Bearer " + token}, "cut off": {"inspect", token[:50]},
		"damaged": {"inspect", "x" + token}, "too long": {"inspect", strings.Repeat("x", 5000)},
	} {
		t.Run(name, func(t *testing.T) {
			got := clitest.Run(t, NewCommand(cli.Connect), args...)
			if got.Code != 1 || got.Stdout != "" ||
				!strings.HasPrefix(got.Stderr,
					"Error: this looks like a token as an argument, where everybody on the machine can read it") {
				t.Errorf("%+v", got)
			}
			testutil.Expect(t, !strings.Contains(got.Stderr, token[20:40]) && !strings.Contains(got.Stderr, "xxxx"),
				"the token is repeated: %s",
				got.Stderr)
		})
	}
}
