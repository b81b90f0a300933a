// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/app/options/secureport"
)

// managerFlags is every flag of the root command with its default, whatever the command
// line of this process says.
func managerFlags() cliflag.NamedFlagSets {
	sets := secureport.New().Flags()
	options.AddGlobalFlags(sets.FlagSet("global"))
	return sets
}

// flagsPage is docs/flags.md: the introduction, a table per group in
// the order of the help, and the hand-written sections. Its output depends on
// nothing but the code.
func flagsPage(sets cliflag.NamedFlagSets) string {
	var b strings.Builder
	b.WriteString(flagsIntroduction)
	for _, title := range sets.Order {
		fmt.Fprintf(&b, "\n## %s flags\n\n", strings.ToUpper(title[:1])+title[1:])
		b.WriteString("| Flag | Default | Meaning | Origin |\n|---|---|---|---|\n")
		sets.FlagSets[title].VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				b.WriteString(flagRow(f))
			}
		})
	}
	b.WriteString(ignoredFlagsTable())
	b.WriteString(flagsSections)
	return b.String()
}

// ignoredFlagsTable lists what is taken and ignored, by what it is about.
func ignoredFlagsTable() string {
	var b strings.Builder
	b.WriteString(ignoredFlagsIntroduction)
	b.WriteString("| About | Flags |\n|---|---|\n")
	var about []string
	names := map[string][]string{}
	for _, f := range options.IgnoredFlags() {
		if !slices.Contains(about, f.Of) {
			about = append(about, f.Of)
		}
		names[f.Of] = append(names[f.Of], "`--"+f.Name+"`")
	}
	for _, of := range about {
		slices.Sort(names[of])
		fmt.Fprintf(&b, "| %s | %s |\n", escapeCell(of), strings.Join(names[of], ", "))
	}
	return b.String()
}

// flagRow is one line of a table.
func flagRow(f *pflag.Flag) string {
	kind, usage := pflag.UnquoteUsage(f)
	name := "`--" + f.Name + "`"
	if f.Shorthand != "" {
		name = "`-" + f.Shorthand + "`, " + name
	}
	if kind != "" {
		name += " " + escapeCell(kind)
	}
	return fmt.Sprintf("| %s | %s | %s | %s |\n", name, defaultCell(f), escapeCell(sentence(usage)),
		escapeCell(strings.TrimPrefix(options.OriginOf(f), "as ")))
}

// defaultCell shows a default as it would be typed.
func defaultCell(f *pflag.Flag) string {
	value := f.DefValue
	if list, ok := strings.CutPrefix(value, "["); ok {
		value = strings.TrimSuffix(list, "]")
	}
	if value == "" {
		return ""
	}
	return "`" + value + "`"
}

// sentence evens out usage texts that come from libraries.
func sentence(s string) string {
	s = strings.TrimSuffix(strings.TrimSpace(s), " This is only applicable if leader election is enabled.")
	if s == "" {
		return s
	}
	s = strings.ToUpper(s[:1]) + s[1:]
	return strings.TrimSuffix(s, ".") + "."
}

// escapeCell keeps Markdown from reading anything into plain text in a table.
func escapeCell(s string) string {
	return strings.NewReplacer("|", "\\|", "*", "\\*", "<", "&lt;", "\n", " ").Replace(s)
}
