// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
)

// TestOutputFlags wants every command to explain, to complete and to take the same formats.
func TestOutputFlags(t *testing.T) {
	t.Parallel()
	const table, text = `Format: "table", "json" or "yaml".`, `Format: "text", "json" or "yaml".`
	wants := map[string]struct {
		usage   string
		formats []string
	}{
		"version":              {text, []string{"text", "json", "yaml"}},
		"tokens inspect":       {text, []string{"text", "json", "yaml"}},
		"tokens audit":         {`Format: "table", "wide", "json" or "yaml".`, []string{"table", "wide", "json", "yaml"}},
		"doctor":               {table, []string{"table", "json", "yaml"}},
		"webhook missed":       {table, []string{"table", "json", "yaml"}},
		"keys init":            {table, []string{"table", "json", "yaml"}},
		"keys list":            {`Format: "table", "json", "yaml" or "pem".`, []string{"table", "json", "yaml", "pem"}},
		"keys rotate start":    {table, []string{"table", "json", "yaml"}},
		"keys rotate status":   {table, []string{"table", "json", "yaml"}},
		"keys rotate activate": {table, []string{"table", "json", "yaml"}},
		"keys rotate complete": {table, []string{"table", "json", "yaml"}},
		"keys rollback":        {table, []string{"table", "json", "yaml"}},
		"keys prune":           {table, []string{"table", "json", "yaml"}},
		"keys jwks":            {`With --check, the format: "table", "json" or "yaml".`, []string{"table", "json", "yaml"}},
		"preflight": {
			`Format: "table", "json" or "yaml"; "grant" prints the roles and bindings that grant what is missing, and nothing else.`,
			[]string{"table", "json", "yaml", "grant"},
		},
	}
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
		flag := cmd.Flags().Lookup("output")
		if flag == nil {
			return
		}
		name := strings.TrimPrefix(cmd.CommandPath(), options.ProgramName+" ")
		want, known := wants[name]
		delete(wants, name)
		if !known || flag.Usage != want.usage || flag.DefValue != want.formats[0] || flag.Shorthand != "o" {
			t.Errorf("%s: -%s, --output %q by default, %q", name, flag.Shorthand, flag.DefValue, flag.Usage)
		}
		line := strings.Fields(name)
		completed := command(t, slices.Concat([]string{"__complete"}, line, []string{"--output", ""})...).stdout
		if completed != strings.Join(want.formats, "\n")+"\n:4\n" {
			t.Errorf("%s: completed %q", name, completed)
		}
		refused := command(t, append(line, "--output=none")...)
		if problem := `--output "none" must be one of "` + strings.Join(want.formats, `", "`) + `"`; refused.code != 1 || !strings.Contains(refused.stderr, problem+"\n") {
			t.Errorf("%s: %+v, want %q", name, refused, problem)
		}
	}
	visit(newCommand(nil, io.Discard, io.Discard))
	if len(wants) > 0 {
		t.Errorf("there is no --output of %v", wants)
	}
}
