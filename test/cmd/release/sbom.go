// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// sbom is an SPDX 2.3 document: the binary, the modules in it and Go's standard library. It asks nobody but the binary,
// which names its modules and their checksums, so the document cannot say anything else than what was linked.
func sbom(p part) error {
	digest, err := digestOf(p.args[0])
	if err != nil {
		return err
	}
	info, err := buildinfo.ReadFile(p.args[0])
	if err != nil {
		return err
	}
	file := filepath.Base(p.args[0])
	main := module(info.Main.Path, p.version, digest, "")
	main["primaryPackagePurpose"], main["packageFileName"] = "APPLICATION", file
	main["licenseConcluded"], main["licenseDeclared"] = "Apache-2.0", "Apache-2.0"
	main["copyrightText"] = "Copyright The sa-controller-manager Authors."

	packages := []object{main, module("stdlib", strings.TrimPrefix(info.GoVersion, "go"), "", "")}
	for _, linked := range info.Deps {
		if linked.Replace != nil {
			linked = linked.Replace
		}
		sum := ""
		if decoded, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(linked.Sum, "h1:")); err == nil && len(decoded) == sha256.Size {
			sum = hex.EncodeToString(decoded)
		}
		// What the checksum of a module is (golang.org/x/mod/sumdb/dirhash).
		packages = append(packages, module(linked.Path, linked.Version, sum,
			"The checksum is that of go.sum, h1: the SHA-256 of the list of SHA-256 sums of the module's files."))
	}
	relationships := []object{{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": main["SPDXID"]}}
	for _, part := range packages[1:] {
		relationships = append(relationships,
			object{"spdxElementId": main["SPDXID"], "relationshipType": "DEPENDS_ON", "relatedSpdxElement": part["SPDXID"]})
	}
	return writeJSON(p.out, object{
		"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": file + "-" + p.version,
		// Only has to be unique, and is for what is unique.
		"documentNamespace": "https://spdx.org/spdxdocs/" + file + "-" + digest,
		"creationInfo":      object{"created": p.made.UTC().Format(time.RFC3339), "creators": []string{"Tool: " + program + "-sbom"}},
		"packages":          packages, "relationships": relationships,
	})
}

// module is a package of SPDX. Its package URL is of the type golang
// (https://github.com/package-url/purl-spec, types/golang-definition.json). Which module proxy serves it is the reader's choice.
func module(path, version, sum, comment string) object {
	purl := "pkg:golang/" + strings.ToLower(path)
	if version != "" {
		// A plus is a blank to some readers.
		purl += "@" + strings.ReplaceAll(url.PathEscape(version), "+", "%2B")
	}
	m := object{
		"SPDXID": "SPDXRef-Package-" + regexp.MustCompile(`[^A-Za-z0-9.]+`).ReplaceAllString(path+"-"+version, "-"),
		"name":   path, "versionInfo": version, "primaryPackagePurpose": "LIBRARY",
		"externalRefs":     []object{{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}},
		"downloadLocation": "NOASSERTION", "licenseConcluded": "NOASSERTION", "licenseDeclared": "NOASSERTION", "copyrightText": "NOASSERTION",
	}
	if sum != "" {
		m["checksums"] = []object{{"algorithm": "SHA256", "checksumValue": sum}}
		if comment != "" {
			m["comment"] = comment
		}
	}
	return m
}

// digestOf is the SHA-256 of a file.
func digestOf(file string) (string, error) {
	content, err := os.ReadFile(file)
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:]), err
}

// object is one of JSON, whose members are written in order.
type object map[string]any

func writeJSON(file string, content object) error {
	text, err := json.MarshalIndent(content, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644) //nolint:gosec // For everybody to read.
}
