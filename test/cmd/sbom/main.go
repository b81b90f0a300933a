// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Command sbom writes what a Go binary is made of as an SPDX 2.3 document in JSON. It asks
// nobody but the binary, which names its modules and their checksums (debug/buildinfo), so
// the document cannot say anything else than what was linked. Equal binaries give equal
// documents.
//
// The few SPDX types are written here: cyclonedx-gomod writes no SPDX, ko describes only what it has
// built itself, and a library for SPDX would replace the types alone.
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("sbom", flag.ContinueOnError)
	binary := flags.String("binary", "", "Go binary that is described (`file`)")
	out := flags.String("out", "", "`file` to write")
	version := flags.String("version", "v0.0.0", "version of the binary")
	date := flags.String("date", "1970-01-01T00:00:00Z", "time of the commit that it is made from")
	if err := flags.Parse(args); err != nil {
		return err
	}
	created, err := time.Parse(time.RFC3339, *date)
	if err != nil {
		return fmt.Errorf("-date: %w", err)
	}
	content, err := os.ReadFile(*binary)
	if err != nil {
		return err
	}
	info, err := buildinfo.ReadFile(*binary)
	if err != nil {
		return fmt.Errorf("read the modules of %s: %w", *binary, err)
	}
	sum := sha256.Sum256(content)
	text, err := json.MarshalIndent(describe(info, subject{
		file: filepath.Base(*binary), version: *version, sha256: hex.EncodeToString(sum[:]), created: created,
	}), "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(*out, append(text, '\n'), 0o644) //nolint:gosec // For everybody to read.
}
