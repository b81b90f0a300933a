// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"sa-controller-manager/test/must"
)

const (
	predicateType = "https://slsa.dev/provenance/v1"
	// The project has no address yet in which a URL could be.
	buildType = "urn:sa-controller-manager:make-release:v1"
	// Any machine on which "make release" runs: nobody vouches for it.
	builder = "urn:sa-controller-manager:developers-machine"
)

// provenance is an in-toto statement with a SLSA provenance, version 1: which files a release has, which commit and which Go
// they were built from. It names no machine, person or time. It is not signed: the signature of SHA256SUMS, which lists
// it, covers it.
func provenance(p part) {
	info := must.Get(buildinfo.ReadFile(p.args[0]))
	subjects := []object{}
	sources := []object{{"name": program, "digest": object{"gitCommit": p.commit}}}
	describe := func(dir, name string) object {
		return object{"name": name, "digest": object{"sha256": digestOf(filepath.Join(dir, name))}}
	}
	for _, file := range must.Get(os.ReadDir(p.dir)) {
		subjects = append(subjects, describe(p.dir, file.Name()))
	}
	for _, sums := range []string{"go.sum", "test/go.sum"} {
		sources = append(sources, describe(p.source, sums))
	}
	predicate := object{
		"buildDefinition": object{
			"buildType": buildType, "externalParameters": object{"target": "release", "version": p.version},
			"resolvedDependencies": sources,
		},
		"runDetails": object{"builder": object{"id": builder, "version": object{"go": info.GoVersion}}},
	}
	statement := object{"_type": intoto.StatementTypeUri, "subject": subjects, "predicateType": predicateType, "predicate": predicate}
	must.Do(errors.Join(valid(statement, &intoto.Statement{}), valid(predicate, &slsa.Provenance{})))
	writeJSON(p.out, statement)
}

// valid reports what is wrong with a message in JSON.
func valid(content object, message interface {
	proto.Message
	Validate() error
}) error {
	text, err := json.Marshal(content)
	return errors.Join(err, protojson.Unmarshal(text, message), message.Validate())
}

// sbom is an SPDX 2.3 document: the binary, the modules in it and Go's standard library. It asks nobody but the binary,
// which names its modules and their checksums, so the document cannot say anything else than what was linked.
func sbom(p part) {
	digest, info := digestOf(p.args[0]), must.Get(buildinfo.ReadFile(p.args[0]))
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
		if decoded, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(linked.Sum, "h1:")); err == nil &&
			len(decoded) == sha256.Size {
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
	writeJSON(p.out, object{
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
		"downloadLocation": "NOASSERTION", "licenseConcluded": "NOASSERTION", "licenseDeclared": "NOASSERTION",
		"copyrightText": "NOASSERTION",
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
func digestOf(file string) string {
	sum := sha256.Sum256(must.Get(os.ReadFile(file)))
	return hex.EncodeToString(sum[:])
}

// object is one of JSON, whose members are written in order.
type object map[string]any

func writeJSON(file string, content object) {
	text := append(must.Get(json.MarshalIndent(content, "", "  ")), '\n')
	must.Do(os.WriteFile(file, text, 0o644)) //nolint:gosec // For everybody to read.
}
