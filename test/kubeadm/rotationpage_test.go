// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/tokens"
)

// block is what a page has people type, and what it says that this prints.
type block struct {
	commands string
	prints   string // "" if the page does not say
	// without is for a kube-apiserver that does not use our signer, and for no other.
	without bool
}

// rotationPage is docs/rotation.md and the node on which somebody follows it.
type rotationPage struct {
	node     *node
	signer   bool // whether kube-apiserver uses ours
	sections map[string][]block
	good     map[string]string // tokens that have to be accepted, by whose they are
}

func openRotationPage(t *testing.T, signer bool, prepare ...func(*node)) *rotationPage {
	t.Helper()
	p := &rotationPage{node: newNode(t, prepare...), signer: signer, sections: readRotationPage(t), good: map[string]string{}}
	awaitDefaultAccount(t, p.node, "default")
	awaitDefaultAccount(t, p.node, "kube-system")
	return p
}

// readRotationPage returns the blocks below each heading that has any.
func readRotationPage(t *testing.T) map[string][]block {
	t.Helper()
	content, err := os.ReadFile("../../docs/rotation.md")
	testutil.Must(t, err)
	sections := map[string][]block{}
	heading, language, text, before := "", "", "", ""
	for line := range strings.Lines(string(content)) {
		fence, fenced := strings.CutPrefix(strings.TrimSpace(line), "```")
		last := len(sections[heading]) - 1
		switch {
		case fenced && language == "":
			language, text = fence, ""
		case !fenced && language != "":
			text += line
		case fenced && language == "sh":
			sections[heading] = append(sections[heading], block{commands: text, without: strings.HasPrefix(before, "Only **without**")})
			language, before = "", ""
		case fenced && language == "text" && last >= 0:
			sections[heading][last].prints = text
			language, before = "", ""
		case fenced:
			t.Fatalf("a block of %q that nobody runs", language)
		case strings.HasPrefix(line, "##"):
			heading = strings.TrimSpace(strings.TrimLeft(line, "#"))
		case strings.TrimSpace(line) != "":
			before = strings.TrimSpace(line)
		}
	}
	return sections
}

// follow types what is below a heading into a shell that knows what is to be pasted first.
func (p *rotationPage) follow(t *testing.T, heading string) {
	t.Helper()
	blocks := p.sections[heading]
	if len(blocks) == 0 {
		t.Fatalf("the page has no commands below %q", heading)
	}
	out := t.TempDir()
	script := p.sections[pasteFirst][0].commands
	for i, b := range blocks {
		if !b.without || !p.signer {
			script += fmt.Sprintf("{\n%s\n} >%s/%d 2>&1\n", b.commands, out, i)
		}
	}
	failed := p.node.shell(t, script).Run()
	for i, b := range blocks {
		printed, err := os.ReadFile(fmt.Sprintf("%s/%d", out, i))
		if err != nil {
			continue // not run
		}
		if failed != nil {
			t.Logf("%s\nprinted:\n%s", b.commands, printed)
			continue
		}
		if b.prints == "" || !p.signer {
			continue // the page shows what a node prints that has had one key ever
		}
		got := strings.NewReplacer(p.node.another(), "", p.node.root, "").Replace(string(printed))
		if diff := cmp.Diff(masked(b.prints), masked(got)); diff != "" {
			t.Errorf("%s: the page is wrong about what this prints (-page +printed):\n%s\n%s", heading, b.commands, diff)
		}
	}
	if failed != nil {
		t.Fatalf("%s: %v\n%s", heading, failed, p.node.kubelet)
	}
}

// masked is a text less what differs from one node to another: key IDs, times, and how wide
// the columns are.
func masked(text string) string {
	text = regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`).ReplaceAllString(text, "TIME")
	// The wait of the tests is over at once, and that of the page is not.
	text = strings.ReplaceAll(text, "the next key may sign from TIME on:", "the next key may sign:")
	text = regexp.MustCompile(`[A-Za-z0-9_-]{43}`).ReplaceAllString(text, "ID")
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(lines, "\n")
}

func startTime() *regexp.Regexp {
	return regexp.MustCompile(`(?m)^process_start_time_seconds .*$`)
}

// headerOf reads a token without verifying it.
func headerOf(t *testing.T, token string) tokens.Token {
	t.Helper()
	content, err := tokens.Inspect(token)
	testutil.Must(t, err)
	return content
}
