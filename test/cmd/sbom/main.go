// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Command sbom writes what a Go binary is made of as an SPDX 2.3 document in JSON. It asks
// nobody but the binary, which names its modules and their checksums (debug/buildinfo), so
// the document cannot say anything else than what was linked. Equal binaries give equal
// documents.
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"
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

const noAssertion = "NOASSERTION"

// subject is what the binary does not know of itself.
type subject struct {
	file, version, sha256 string
	created               time.Time
}

// describe lists the binary, the modules in it and Go's standard library.
func describe(info *debug.BuildInfo, about subject) *spdx.Document {
	main := newPackage(info.Main.Path, about.version)
	main.PrimaryPackagePurpose, main.PackageFileName = "APPLICATION", about.file
	main.PackageLicenseConcluded, main.PackageLicenseDeclared = "Apache-2.0", "Apache-2.0"
	main.PackageCopyrightText = "Copyright The sa-controller-manager Authors."
	main.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: about.sha256}}

	packages := []*spdx.Package{main, newPackage("stdlib", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, module := range info.Deps {
		packages = append(packages, dependency(module))
	}
	related := func(from common.ElementID, kind string, to common.ElementID) *spdx.Relationship {
		return &spdx.Relationship{RefA: common.DocElementID{ElementRefID: from}, Relationship: kind, RefB: common.DocElementID{ElementRefID: to}}
	}
	relationships := []*spdx.Relationship{related("DOCUMENT", common.TypeRelationshipDescribe, main.PackageSPDXIdentifier)}
	for _, part := range packages[1:] {
		relationships = append(relationships, related(main.PackageSPDXIdentifier, common.TypeRelationshipDependsOn, part.PackageSPDXIdentifier))
	}
	return &spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT",
		DocumentName: about.file + "-" + about.version,
		// Only has to be unique, and is for what is unique.
		DocumentNamespace: "https://spdx.org/spdxdocs/" + about.file + "-" + about.sha256,
		CreationInfo: &spdx.CreationInfo{
			Created: about.created.UTC().Format(time.RFC3339), Creators: []common.Creator{
				{CreatorType: "Tool", Creator: "sa-controller-manager-sbom"},
			},
		},
		Packages: packages, Relationships: relationships,
	}
}

// dependency is a module as it was linked: what replaces it, if it was replaced.
func dependency(module *debug.Module) *spdx.Package {
	if module.Replace != nil {
		module = module.Replace
	}
	part := newPackage(module.Path, module.Version)
	if sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(module.Sum, "h1:")); err == nil && len(sum) == sha256.Size {
		part.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: hex.EncodeToString(sum)}}
		// What the checksum of a module is (golang.org/x/mod/sumdb/dirhash).
		part.PackageComment = "The checksum is that of go.sum, h1: the SHA-256 of the list of SHA-256 sums of the module's files."
	}
	return part
}

func newPackage(path, version string) *spdx.Package {
	return &spdx.Package{
		PackageSPDXIdentifier: common.ElementID("Package-" + regexp.MustCompile(`[^A-Za-z0-9.]+`).ReplaceAllString(path+"-"+version, "-")),
		PackageName:           path, PackageVersion: version, PrimaryPackagePurpose: "LIBRARY",
		PackageDownloadLocation: noAssertion, // which module proxy serves it is the reader's choice
		PackageLicenseConcluded: noAssertion, PackageLicenseDeclared: noAssertion, PackageCopyrightText: noAssertion,
		PackageExternalReferences: []*spdx.PackageExternalReference{{
			Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: purl(path, version),
		}},
	}
}

// purl is a package URL of the type golang
// (https://github.com/package-url/purl-spec, types/golang-definition.json).
func purl(path, version string) string {
	locator := "pkg:golang/" + strings.ToLower(path)
	if version != "" {
		// A plus is a blank to some readers.
		locator += "@" + strings.ReplaceAll(url.PathEscape(version), "+", "%2B")
	}
	return locator
}
