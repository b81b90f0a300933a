// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/internal/testutil"
)

// TestOutputFlags wants every command to explain, to complete and to take the same formats.
func TestOutputFlags(t *testing.T) {
	t.Parallel()
	const table, text = `Format: "table", "json" or "yaml".`, `Format: "text", "json" or "yaml".`
	type output struct {
		usage   string
		formats []string
	}
	grants := output{
		`Format: "table", "json" or "yaml"; "grant" prints the roles and bindings that grant what is missing, and nothing else.`,
		[]string{"table", "json", "yaml", "grant"},
	}
	wants := map[string]output{
		"version":        {text, []string{"text", "json", "yaml"}},
		"kubeadm status": {text, []string{"text", "json", "yaml"}},
		"tokens inspect": {text, []string{"text", "json", "yaml"}},
		"tokens audit":   {`Format: "table", "wide", "json", "yaml" or "html".`, []string{"table", "wide", "json", "yaml", "html"}},
		"doctor":         {table, []string{"table", "json", "yaml"}},
		"keys init":      {table, []string{"table", "json", "yaml"}},
		"keys list":      {table, []string{"table", "json", "yaml"}},
		"keys rotate":    {table, []string{"table", "json", "yaml"}},
		"keys next":      {table, []string{"table", "json", "yaml"}},
		"keys rollback":  {table, []string{"table", "json", "yaml"}},
		"keys prune":     {table, []string{"table", "json", "yaml"}},
		"keys forget":    {table, []string{"table", "json", "yaml"}},
		"keys revoke":    {table, []string{"table", "json", "yaml"}},
		"keys import":    {table, []string{"table", "json", "yaml"}},
		"keys jwks":      {`With --check, the format: "table", "json" or "yaml".`, []string{"table", "json", "yaml"}},
		"preflight":      grants, "preflight signer": grants,
	}
	for _, cmd := range allCommands(newCommand(nil, io.Discard, io.Discard)) {
		flag := cmd.Flags().Lookup("output")
		if flag == nil {
			continue
		}
		name := strings.TrimPrefix(cmd.CommandPath(), options.ProgramName+" ")
		want, known := wants[name]
		delete(wants, name)
		if !known || flag.Usage != want.usage || flag.DefValue != want.formats[0] || flag.Shorthand != "o" {
			t.Errorf("%s: -%s, --output %q by default, %q", name, flag.Shorthand, flag.DefValue, flag.Usage)
		}
		line := strings.Fields(name)
		completed := command(t, slices.Concat([]string{"__complete"}, line, []string{"--output", ""})...).Stdout
		testutil.Check(t, name+": completed", strings.Join(want.formats, "\n")+"\n:4\n", completed)
		refused := command(t, append(line, "--output=none")...)
		if problem := `--output "none" must be one of "` + strings.Join(want.formats, `", "`) + `"`; refused.Code != 1 ||
			!strings.Contains(refused.Stderr, problem+"\n") {
			t.Errorf("%s: %+v, want %q", name, refused, problem)
		}
	}
	if len(wants) > 0 {
		t.Errorf("there is no --output of %v", wants)
	}
}

// allCommands are cmd and all below it.
func allCommands(cmd *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{cmd}
	for _, sub := range cmd.Commands() {
		all = append(all, allCommands(sub)...)
	}
	return all
}
