// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stateobject is the codec of the ConfigMaps and Secrets in which this program keeps state
// that must outlive a process. Every such object names the version of its schema.
//
// An object of another version belongs to another release: it is neither read nor
// overwritten, and Read returns an UnknownVersionError that names the version. All other unreadable
// content is damage, which the owner of the object reports and repairs with its next write. A
// version that no release would write is damage too.
package stateobject

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// VersionKey is the key that holds the version of the schema.
const VersionKey = "schema-version"

// version is the only one so far, of all objects.
const version = "1"

// versionForm is how every release writes its version.
var versionForm = regexp.MustCompile(`^[1-9][0-9]*$`)

// UnknownVersionError means that another release, mostly a newer one, wrote the object.
type UnknownVersionError struct{ Version string }

func (e *UnknownVersionError) Error() string {
	return fmt.Sprintf("its %s is %.20q, this program knows %q only", VersionKey, e.Version, version)
}

// Value is what ConfigMaps (string) and Secrets ([]byte) hold under each key.
type Value interface{ string | []byte }

// Fields are the data of an object, and what is damaged in it.
type Fields[V Value] struct {
	data   map[string]V
	damage []string
}

// Read returns the Fields of an object. A nil or empty map is damaged, not of an unknown version.
func Read[V Value](data map[string]V) (*Fields[V], error) {
	f := &Fields[V]{data: data}
	switch found := string(data[VersionKey]); {
	case found == version:
	case versionForm.MatchString(found):
		return nil, &UnknownVersionError{found}
	case found == "":
		f.damage = append(f.damage, VersionKey+" is missing")
	default:
		f.damage = append(f.damage, VersionKey+" is no version")
	}
	return f, nil
}

// Get returns the value under key, empty if there is none.
func (f *Fields[V]) Get(key string) V { return f.data[key] }

// After returns, sorted, what follows the prefix in the keys that have it.
func (f *Fields[V]) After(prefix string) []string {
	var names []string
	for _, key := range slices.Sorted(maps.Keys(f.data)) {
		if rest, ok := strings.CutPrefix(key, prefix); ok {
			names = append(names, rest)
		}
	}
	return names
}

// Damaged notes that the values of the keys cannot be used. The error must not quote a secret
// value.
func (f *Fields[V]) Damaged(keys string, err error) {
	f.damage = append(f.damage, fmt.Sprintf("%s: %v", keys, err))
}

// Damage describes the damaged keys, "" if there are none.
func (f *Fields[V]) Damage() string { return strings.Join(f.damage, "; ") }

// Stamp adds the version to the data of an object before a write, and returns data.
func Stamp[V Value](data map[string]V) map[string]V {
	data[VersionKey] = V(version)
	return data
}
