// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// docs/operations.md is compared with the code, so that an engineer who reads it at
// night finds every metric and every Event, and none that was renamed.

const operationsFile = "../docs/operations.md"

func TestOperationsHasEveryMetric(t *testing.T) {
	t.Parallel()
	var ours []string
	for _, name := range documented(t, "Metrics") {
		if regexp.MustCompile(`^(sacm|root_ca_cert_publisher)_`).MatchString(name) {
			ours = append(ours, name)
		}
	}
	if diff := cmp.Diff(sources(t).metrics(t), ours); diff != "" {
		t.Errorf("metrics of the code (-) and of %s (+):\n%s", operationsFile, diff)
	}
}

func TestOperationsHasEveryEvent(t *testing.T) {
	t.Parallel()
	if diff := cmp.Diff(sources(t).reasons(t), documented(t, "Events")); diff != "" {
		t.Errorf("reasons of Events of the code (-) and of %s (+):\n%s", operationsFile, diff)
	}
}

// documented are the names in the first cells of the tables below a heading, sorted.
func documented(t *testing.T, heading string) []string {
	t.Helper()
	_, text, found := strings.Cut(operations(t), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("%s has no heading %q", operationsFile, heading)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	names := map[string]bool{}
	for line := range strings.Lines(text) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 {
			continue
		}
		for _, match := range regexp.MustCompile("`([A-Za-z0-9_]+)`").FindAllStringSubmatch(cells[1], -1) {
			names[match[1]] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func operations(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(operationsFile)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// code holds the files of each directory of the product.
type code map[string][]*ast.File

func sources(t *testing.T) code {
	t.Helper()
	found := code{}
	for _, root := range []string{"../admission", "../cmd", "../controllers", "../internal", "../signing"} {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if path == "../internal/testutil" {
				return filepath.SkipDir // only tests import it
			}
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			found[filepath.Dir(path)] = append(found[filepath.Dir(path)], file)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// metrics are the names in the options of component-base's metrics, sorted.
func (c code) metrics(t *testing.T) []string {
	t.Helper()
	names := map[string]bool{}
	for directory, files := range c {
		constants := constants(files)
		inspect(files, func(node ast.Node) {
			options, ok := node.(*ast.CompositeLit)
			if !ok {
				return
			}
			if kind, ok := options.Type.(*ast.SelectorExpr); !ok || !strings.HasSuffix(kind.Sel.Name, "Opts") || name(kind.X) != "metrics" {
				return
			}
			parts := map[string]string{}
			for _, element := range options.Elts {
				if field, ok := element.(*ast.KeyValueExpr); ok {
					parts[name(field.Key)] = text(field.Value, constants)
				}
			}
			full := []string{parts["Namespace"], parts["Subsystem"], parts["Name"]}
			if parts["Name"] == "" {
				t.Errorf("%s: a metric whose name is no constant", directory)
			}
			names[strings.Join(slices.DeleteFunc(full, func(part string) bool { return part == "" }), "_")] = true
		})
	}
	return slices.Sorted(maps.Keys(names))
}

// camel is the form of a reason.
var camel = regexp.MustCompile(`^[A-Z][A-Za-z]+$`)

// reasons are what Events are filtered by: the second arguments of calls that record one,
// and the constants called reason..., sorted.
func (c code) reasons(t *testing.T) []string {
	t.Helper()
	reasons := map[string]bool{}
	for directory, files := range c {
		constants := constants(files)
		for constant, value := range constants {
			if strings.HasPrefix(constant, "reason") && camel.MatchString(value) {
				reasons[value] = true
			}
		}
		inspect(files, func(node ast.Node) {
			call, ok := node.(*ast.CallExpr)
			if !ok || len(call.Args) < 4 {
				return
			}
			function, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !slices.Contains([]string{"Warn", "Normal", "warn", "normal"}, function.Sel.Name) {
				return
			}
			reason := text(call.Args[1], constants)
			switch {
			case camel.MatchString(reason):
				reasons[reason] = true
			case name(call.Args[1]) == "reason":
				// Handed on, or one of the constants above.
			default:
				t.Errorf("%s: %s is called with a reason that is neither a constant nor called reason", directory, function.Sel.Name)
			}
		})
	}
	return slices.Sorted(maps.Keys(reasons))
}

func inspect(files []*ast.File, look func(ast.Node)) {
	for _, file := range files {
		ast.Inspect(file, func(node ast.Node) bool {
			look(node)
			return true
		})
	}
}

// constants are all strings that have a name, in functions too.
func constants(files []*ast.File) map[string]string {
	found := map[string]string{}
	inspect(files, func(node ast.Node) {
		spec, ok := node.(*ast.ValueSpec)
		if !ok {
			return
		}
		for i, value := range spec.Values {
			if s := text(value, nil); s != "" {
				found[spec.Names[i].Name] = s
			}
		}
	})
	return found
}

// text is the value of a literal or of a constant, or empty.
func text(expression ast.Expr, constants map[string]string) string {
	switch e := expression.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(e.Value)
		if err != nil {
			return ""
		}
		return s
	case *ast.Ident:
		return constants[e.Name]
	}
	return ""
}

// name is the last part of what is named.
func name(expression ast.Expr) string {
	switch e := expression.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}
