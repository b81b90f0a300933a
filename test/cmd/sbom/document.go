// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/base64"
	"encoding/hex"
	"net/url"
	"regexp"
	"runtime/debug"
	"strings"
	"time"
)

// The parts of an SPDX 2.3 document that are used here, under their names in its JSON form
// (https://spdx.github.io/spdx-spec/v2.3/).
type (
	document struct {
		SPDXVersion       string         `json:"spdxVersion"`
		DataLicense       string         `json:"dataLicense"`
		SPDXID            string         `json:"SPDXID"`
		Name              string         `json:"name"`
		DocumentNamespace string         `json:"documentNamespace"`
		CreationInfo      creationInfo   `json:"creationInfo"`
		Packages          []spdxPackage  `json:"packages"`
		Relationships     []relationship `json:"relationships"`
	}
	creationInfo struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		SPDXID           string        `json:"SPDXID"`
		Name             string        `json:"name"`
		VersionInfo      string        `json:"versionInfo"`
		PackageFileName  string        `json:"packageFileName,omitempty"`
		Purpose          string        `json:"primaryPackagePurpose"`
		DownloadLocation string        `json:"downloadLocation"`
		FilesAnalyzed    bool          `json:"filesAnalyzed"`
		LicenseConcluded string        `json:"licenseConcluded"`
		LicenseDeclared  string        `json:"licenseDeclared"`
		CopyrightText    string        `json:"copyrightText"`
		Checksums        []checksum    `json:"checksums,omitempty"`
		Comment          string        `json:"comment,omitempty"`
		ExternalRefs     []externalRef `json:"externalRefs"`
	}
	checksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	externalRef struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	relationship struct {
		Element string `json:"spdxElementId"`
		Type    string `json:"relationshipType"`
		Related string `json:"relatedSpdxElement"`
	}
)

const (
	documentID  = "SPDXRef-DOCUMENT"
	noAssertion = "NOASSERTION"

	// dirhash says what the checksum of a module is (golang.org/x/mod/sumdb/dirhash).
	dirhash = "The checksum is that of go.sum, h1: the SHA-256 of the list of SHA-256 sums of the module's files."
)

// subject is what the binary does not know of itself.
type subject struct {
	file, version, sha256 string
	created               time.Time
}

// describe lists the binary, the modules in it and Go's standard library.
func describe(info *debug.BuildInfo, about subject) document {
	main := newPackage(info.Main.Path, about.version)
	main.Purpose, main.PackageFileName = "APPLICATION", about.file
	main.LicenseConcluded, main.LicenseDeclared = "Apache-2.0", "Apache-2.0"
	main.CopyrightText = "Copyright The sa-controller-manager Authors."
	main.Checksums = []checksum{{"SHA256", about.sha256}}

	packages := []spdxPackage{main, newPackage("stdlib", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, module := range info.Deps {
		packages = append(packages, dependency(module))
	}
	relationships := []relationship{{documentID, "DESCRIBES", main.SPDXID}}
	for _, part := range packages[1:] {
		relationships = append(relationships, relationship{main.SPDXID, "DEPENDS_ON", part.SPDXID})
	}
	return document{
		SPDXVersion: "SPDX-2.3",
		DataLicense: "CC0-1.0",
		SPDXID:      documentID,
		Name:        about.file + "-" + about.version,
		// Only has to be unique, and is for what is unique.
		DocumentNamespace: "https://spdx.org/spdxdocs/" + about.file + "-" + about.sha256,
		CreationInfo:      creationInfo{about.created.UTC().Format(time.RFC3339), []string{"Tool: sa-controller-manager-sbom"}},
		Packages:          packages,
		Relationships:     relationships,
	}
}

// dependency is a module as it was linked: what replaces it, if it was replaced.
func dependency(module *debug.Module) spdxPackage {
	if module.Replace != nil {
		module = module.Replace
	}
	part := newPackage(module.Path, module.Version)
	if sum, ok := moduleSum(module.Sum); ok {
		part.Checksums, part.Comment = []checksum{{"SHA256", sum}}, dirhash
	}
	return part
}

func newPackage(path, version string) spdxPackage {
	return spdxPackage{
		SPDXID:           "SPDXRef-Package-" + regexp.MustCompile(`[^A-Za-z0-9.]+`).ReplaceAllString(path+"-"+version, "-"),
		Name:             path,
		VersionInfo:      version,
		Purpose:          "LIBRARY",
		DownloadLocation: noAssertion, // which module proxy serves it is the reader's choice
		LicenseConcluded: noAssertion,
		LicenseDeclared:  noAssertion,
		CopyrightText:    noAssertion,
		ExternalRefs:     []externalRef{{"PACKAGE-MANAGER", "purl", purl(path, version)}},
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

// moduleSum is the hash of go.sum in the form of SPDX.
func moduleSum(sum string) (string, bool) {
	encoded, ok := strings.CutPrefix(sum, "h1:")
	raw, err := base64.StdEncoding.DecodeString(encoded)
	return hex.EncodeToString(raw), ok && err == nil && len(raw) == 32
}
