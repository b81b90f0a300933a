// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Command docs prints what is generated from the product's own tables: docs/flags.md, the roles
// below manifests/permissions, and the page of a chart's values.
package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	cliflag "k8s.io/component-base/cli/flag"
	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/app/options/secureport"
	"sa-controller-manager/cmd/sa-controller-manager/app/permissions"
	apiyaml "sigs.k8s.io/yaml"

	"sa-controller-manager/test/must"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "docs:", err)
		os.Exit(1)
	}
}

func run(args []string, w io.Writer) error {
	if want := 1; len(args) != want && (len(args) != want+1 || args[0] != "chart") {
		return fmt.Errorf("got %d arguments, want one: flags, or a file of roles; or chart and its directory", len(args))
	}
	return must.Catch(func() { must.Get(io.WriteString(w, page(args))) })
}

func page(args []string) string {
	switch args[0] {
	case "chart":
		return chartPage(args[len(args)-1])
	case "flags":
		return flagsPage(managerFlags())
	case "roles":
		return roles(permissions.StandardRules(options.New()))
	case string(permissions.TokenSecrets), "options":
		rules := permissions.OptionalRules()
		return roles(slices.DeleteFunc(rules, func(r permissions.Rule) bool {
			return r.Part == permissions.Signer || (r.Part == permissions.TokenSecrets) != (args[0] == string(permissions.TokenSecrets))
		}))
	case string(permissions.Signer):
		return signerRoles()
	}
	must.Not(true, "%q is none of: chart, flags, roles, token-secrets, options, signer", args[0])
	return ""
}

// signerRoles has all that "sa-controller-manager signer" needs.
func signerRoles() string {
	o := secureport.NewSigner()
	o.Keys.KeyRing, o.Keys.Issuers = "ring.json", []string{"https://issuer"}
	return roles(must.Get(permissions.Rules(o)))
}

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
		b.WriteString("| Flag | Meaning |\n|---|---|\n")
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
	if value := defaultOf(f); value != "" {
		name += " (`" + value + "`)"
	}
	meaning := sentence(usage)
	if origin := strings.TrimPrefix(options.OriginOf(f), "as "); origin != "KCM" {
		meaning += " " + sentence(origin)
	}
	return fmt.Sprintf("| %s | %s |\n", name, escapeCell(meaning))
}

// defaultOf returns a default as it would be typed.
func defaultOf(f *pflag.Flag) string {
	if list, ok := strings.CutPrefix(f.DefValue, "["); ok {
		return strings.TrimSuffix(list, "]")
	}
	return f.DefValue
}

// sentence evens out usage texts that come from libraries.
func sentence(s string) string {
	s = strings.TrimSpace(s)
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

// The hand-written parts of docs/flags.md. They live here because the file is
// generated as a whole.

const flagsIntroduction = "<!-- Generated by 'make update-flags'. Edit cmd/sa-controller-manager/app/options instead. -->\n" + `
# Flags

In the order of ` + "`--help`" + `, with the default in brackets. *Ours* exist here only; the others have name and meaning of
kube-controller-manager (KCM), or of the program that is named.
`

const ignoredFlagsIntroduction = `
## Flags of kube-controller-manager without effect here

The arguments of a KCM manifest can be copied as they are: these flags of KCM v1.37.2 are named in one line of the log, and an error
only with ` + "`--strict-flags`" + `.

`

const flagsSections = `
## Choosing controllers

` + "`--controllers`" + ` takes a list, or is given several times.

| Value | What runs here |
|---|---|
| ` + "`*,bootstrapsigner,tokencleaner`" + ` (kubeadm's) | the same; the two others are logged and stay in KCM |
| ` + "`*,-serviceaccount`" + ` | all but the ServiceAccount controller |
| ` + "`serviceaccount-token`" + ` | the token controller alone |
| ` + "`-*`" + ` | none |

The first mention of a controller decides, under its name or its alias, wherever ` + "`*`" + ` stands. ` +
	"`-*`" + ` takes ` + "`*`" + ` back.
`

// rolesHeader begins a file of roles.
const rolesHeader = `# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# Made by "make update-manifests" from the table in app/permissions.
`

// commentWidth is where comments in YAML are wrapped.
const commentWidth = 88

// roles is a file below manifests/permissions: the roles of those rules, the reason of each rule
// as a comment, and their bindings.
func roles(rules []permissions.Rule) string {
	var documents []string
	for _, object := range permissions.Grant(rules, permissions.Accesses(rules)) {
		documents = append(documents, commented(object, rules))
	}
	return rolesHeader + strings.Join(documents, "---\n")
}

// commented is an object as YAML, with the reason above each rule of a role.
func commented(object runtime.Object, rules []permissions.Rule) string {
	plain := must.Get(apiyaml.Marshal(object))
	var document yaml.Node
	must.Do(yaml.Unmarshal(plain, &document))
	fields := document.Content[0].Content
	at := slices.IndexFunc(fields, func(field *yaml.Node) bool { return field.Value == "rules" })
	if at < 0 {
		return string(plain) // a binding
	}
	reasons := reasonsIn(object, rules)
	for i, rule := range fields[at+1].Content {
		rule.HeadComment = wrapped(reasons[i])
		for _, list := range rule.Content {
			list.Style = yaml.FlowStyle
		}
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	must.Do(encoder.Encode(&document))
	return out.String()
}

// reasonsIn are those of the rules that a role has, in its order.
func reasonsIn(role runtime.Object, rules []permissions.Rule) (reasons []string) {
	object := must.Get(meta.Accessor(role))
	for _, rule := range rules {
		if string(rule.Part) == object.GetLabels()["app.kubernetes.io/component"] && rule.Namespace == object.GetNamespace() {
			reasons = append(reasons, rule.Why)
		}
	}
	return reasons
}

// wrapped is text as lines of a comment.
func wrapped(text string) string {
	var lines []string
	line := "#"
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > commentWidth {
			lines = append(lines, line)
			line = "#"
		}
		line += " " + word
	}
	return strings.Join(append(lines, line), "\n")
}
