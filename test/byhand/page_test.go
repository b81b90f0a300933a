// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package byhand

import (
	"os"
	"strings"
	"testing"

	"sa-controller-manager/internal/testutil"
)

// step is one block of commands and what they must print; nil if the page does not say.
type step struct {
	commands string
	prints   *string
}

// readPage reads the fenced blocks of a Markdown page.
func readPage(t *testing.T, path string) []step {
	t.Helper()
	content, err := os.ReadFile(path)
	testutil.Must(t, err)
	var steps []step
	language, block := "", ""
	for line := range strings.Lines(string(content)) {
		fence, fenced := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case fenced && language == "" && fence == "":
			t.Fatalf("%s has a fence that does not say what is in it", path)
		case fenced && language == "":
			language, block = fence, ""
		case !fenced:
			block += line
		case language == "sh test":
			steps = append(steps, step{commands: block})
			language = ""
		case language == "text" && len(steps) > 0:
			prints := block
			steps[len(steps)-1].prints = &prints
			language = ""
		default:
			t.Fatalf("%s has a block of %s that no test runs", path, language)
		}
	}
	return steps
}
