// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Command provenance writes an in-toto statement with a SLSA provenance, version 1: which files a
// release has, which commit and which Go they were built from.
//
// It names no machine, person or time, and so equal releases have equal statements. It is not signed:
// the signature of SHA256SUMS, which lists it, covers it.
package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	provenance "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
)

const (
	predicateType = "https://slsa.dev/provenance/v1"
	// The project has no address yet in which a URL could be.
	buildType = "urn:sa-controller-manager:make-release:v1"
	// Any machine on which "make release" runs: nobody vouches for it.
	builder = "urn:sa-controller-manager:developers-machine"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "provenance:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("provenance", flag.ContinueOnError)
	dir := flags.String("dir", "", "`directory` of the files of the release")
	binary := flags.String("binary", "", "one Go binary in it, which names its Go (`file`)")
	source := flags.String("source", ".", "`directory` of the commit, with go.sum")
	out := flags.String("out", "", "`file` to write")
	version := flags.String("version", "v0.0.0", "version of the release")
	commit := flags.String("commit", "", "commit that it is built from")
	if err := flags.Parse(args); err != nil {
		return err
	}
	info, err := buildinfo.ReadFile(*binary)
	if err != nil {
		return fmt.Errorf("read the version of Go of %s: %w", *binary, err)
	}
	files, err := os.ReadDir(*dir)
	if err != nil {
		return err
	}
	var subjects []*intoto.ResourceDescriptor
	for _, file := range files {
		subject, err := describe(*dir, file.Name())
		if err != nil {
			return err
		}
		subjects = append(subjects, subject)
	}
	sources := []*intoto.ResourceDescriptor{{Name: "sa-controller-manager", Digest: map[string]string{"gitCommit": *commit}}}
	for _, sums := range []string{"go.sum", "test/go.sum"} {
		modules, err := describe(*source, sums)
		if err != nil {
			return err
		}
		sources = append(sources, modules)
	}
	parameters, err := structpb.NewStruct(map[string]any{"target": "release", "version": *version})
	if err != nil {
		return err
	}
	text, err := statement(subjects, &provenance.Provenance{
		BuildDefinition: &provenance.BuildDefinition{BuildType: buildType, ExternalParameters: parameters, ResolvedDependencies: sources},
		RunDetails:      &provenance.RunDetails{Builder: &provenance.Builder{Id: builder, Version: map[string]string{"go": info.GoVersion}}},
	})
	if err != nil {
		return err
	}
	return os.WriteFile(*out, text, 0o644) //nolint:gosec // For everybody to read.
}

// describe names a file by its SHA-256.
func describe(dir, name string) (*intoto.ResourceDescriptor, error) {
	content, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(content)
	return &intoto.ResourceDescriptor{Name: name, Digest: map[string]string{"sha256": hex.EncodeToString(sum[:])}}, nil
}

// statement is the JSON of a valid statement. Blanks are made equal, which protojson varies on purpose.
func statement(subjects []*intoto.ResourceDescriptor, about *provenance.Provenance) ([]byte, error) {
	if err := about.Validate(); err != nil {
		return nil, err
	}
	text, err := protojson.Marshal(about)
	if err != nil {
		return nil, err
	}
	predicate := &structpb.Struct{}
	if err := protojson.Unmarshal(text, predicate); err != nil {
		return nil, err
	}
	all := &intoto.Statement{Type: intoto.StatementTypeUri, Subject: subjects, PredicateType: predicateType, Predicate: predicate}
	if err := all.Validate(); err != nil {
		return nil, err
	}
	if text, err = protojson.Marshal(all); err != nil {
		return nil, err
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, append(text, '\n'), "", "  "); err != nil {
		return nil, err
	}
	return indented.Bytes(), nil
}
