// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
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
func provenance(p part) error {
	info, err := buildinfo.ReadFile(p.args[0])
	if err != nil {
		return err
	}
	files, err := os.ReadDir(p.dir)
	if err != nil {
		return err
	}
	subjects := []object{}
	sources := []object{{"name": program, "digest": object{"gitCommit": p.commit}}}
	describe := func(list *[]object, dir, name string) error {
		digest, err := digestOf(filepath.Join(dir, name))
		*list = append(*list, object{"name": name, "digest": object{"sha256": digest}})
		return err
	}
	for _, file := range files {
		err = errors.Join(err, describe(&subjects, p.dir, file.Name()))
	}
	for _, sums := range []string{"go.sum", "test/go.sum"} {
		err = errors.Join(err, describe(&sources, p.source, sums))
	}
	if err != nil {
		return err
	}
	predicate := object{
		"buildDefinition": object{
			"buildType": buildType, "externalParameters": object{"target": "release", "version": p.version}, "resolvedDependencies": sources,
		},
		"runDetails": object{"builder": object{"id": builder, "version": object{"go": info.GoVersion}}},
	}
	statement := object{"_type": intoto.StatementTypeUri, "subject": subjects, "predicateType": predicateType, "predicate": predicate}
	if err := errors.Join(valid(statement, &intoto.Statement{}), valid(predicate, &slsa.Provenance{})); err != nil {
		return err
	}
	return writeJSON(p.out, statement)
}

// valid reports what is wrong with a message in JSON.
func valid(content object, message interface {
	proto.Message
	Validate() error
}) error {
	text, err := json.Marshal(content)
	return errors.Join(err, protojson.Unmarshal(text, message), message.Validate())
}
