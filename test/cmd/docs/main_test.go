// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/app/permissions"
	"sa-controller-manager/internal/testutil"
)

func TestFilesAreUpToDate(t *testing.T) {
	t.Parallel()
	for what, path := range map[string]string{
		"flags":         "docs/flags.md",
		"roles":         "manifests/permissions/roles.yaml",
		"token-secrets": "manifests/permissions/token-secrets/roles.yaml",
		"options":       "manifests/permissions/options/roles.yaml",
	} {
		var got strings.Builder
		testutil.Must(t, run([]string{what}, &got))
		want, err := os.ReadFile("../../../" + path)
		testutil.Must(t, err)
		testutil.Check(t, path+"; 'make update' rewrites it", string(want), got.String())
	}
}

// TestRoles: the files grant what the table has, part by part, and nothing else.
func TestRoles(t *testing.T) {
	t.Parallel()
	for _, rules := range [][]permissions.Rule{permissions.StandardRules(options.New()), permissions.OptionalRules()} {
		text, err := roles(rules)
		testutil.Must(t, err)
		var got []runtime.Object
		for document := range strings.SplitSeq(text, "\n---\n") {
			object, err := runtime.Decode(scheme.Codecs.UniversalDeserializer(), []byte(document))
			if err != nil {
				t.Fatalf("%v in\n%s", err, document)
			}
			got = append(got, object)
		}
		testutil.Check(t, "objects", permissions.Grant(rules, permissions.Accesses(rules)), got)
		for _, rule := range rules {
			if !strings.Contains(strings.Join(strings.Fields(strings.ReplaceAll(text, "#", " ")), " "),
				strings.Join(strings.Fields(rule.Why), " ")) {
				t.Errorf("there is no reason %q", rule.Why)
			}
		}
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"flag"}, {"flags", "roles"}} {
		if err := run(args, &strings.Builder{}); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
}
