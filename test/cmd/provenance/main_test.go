// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	provenance "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"sa-controller-manager/internal/testutil"
)

func TestRun(t *testing.T) {
	t.Parallel()
	binary, err := os.Executable()
	testutil.Must(t, err)
	const commit = "0123456789abcdef0123456789abcdef01234567"
	for name, test := range map[string]struct {
		commit, content string
		failure         string // "" if a statement is written
	}{
		"a release":             {commit: commit, content: "hello\n"},
		"an unknown commit":     {commit: "unknown", content: "hello\n", failure: "gitCommit: unknown"},
		"a release of no files": {commit: commit, failure: "at least one subject required"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, out := t.TempDir(), filepath.Join(t.TempDir(), "provenance.json")
			if test.content != "" {
				testutil.Must(t, os.WriteFile(filepath.Join(dir, "a"), []byte(test.content), 0o600))
			}
			err := run([]string{"-dir=" + dir, "-binary=" + binary, "-source=../../..", "-out=" + out, "-version=v1.2.3", "-commit=" + test.commit})
			if test.failure != "" {
				if err == nil || !strings.Contains(err.Error(), test.failure) {
					t.Errorf("the error is %v, want one with %q", err, test.failure)
				}
				return
			}
			testutil.Must(t, err)
			text, err := os.ReadFile(out)
			testutil.Must(t, err)
			var read intoto.Statement
			testutil.Must(t, protojson.Unmarshal(text, &read))
			testutil.Must(t, read.Validate())
			testutil.Check(t, "files", map[string]string{"sha256": "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"},
				read.GetSubject()[0].GetDigest())
			predicate, err := protojson.Marshal(read.GetPredicate())
			testutil.Must(t, err)
			var about provenance.Provenance
			testutil.Must(t, protojson.Unmarshal(predicate, &about))
			testutil.Must(t, about.Validate())
			testutil.Check(t, "commit", commit, about.GetBuildDefinition().GetResolvedDependencies()[0].GetDigest()["gitCommit"])
			testutil.Check(t, "Go", runtime.Version(), about.GetRunDetails().GetBuilder().GetVersion()["go"])
		})
	}
}
