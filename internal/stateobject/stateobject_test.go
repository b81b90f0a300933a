// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package stateobject

import (
	"errors"
	"strings"
	"testing"

	"sa-controller-manager/internal/testutil"
)

func TestVersion(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, version string
		absent          bool
		unknown         string // what the error must say
		damage          string
	}{
		"Ours":     {version: "1"},
		"Newer":    {version: "2", unknown: `its schema-version is "2", this program knows "1" only`},
		"FarNewer": {reason: "the beginning names it", version: strings.Repeat("9", 50), unknown: `"` + strings.Repeat("9", 20) + `"`},
		"Missing":  {absent: true, damage: "schema-version is missing"},
		"Word":     {reason: "no release writes it", version: "one", damage: "schema-version is no version"},
		"Spaced":   {reason: "no release writes it", version: "1\n", damage: "schema-version is no version"},
		"Zero":     {reason: "the first one is 1", version: "0", damage: "schema-version is no version"},
	} {
		t.Run(name, func(t *testing.T) {
			texts, bytes := map[string]string{VersionKey: tc.version}, map[string][]byte{VersionKey: []byte(tc.version)}
			if tc.absent {
				texts, bytes = nil, nil
			}
			text, err := Read(texts)
			secret, errOfBytes := Read(bytes)
			for _, err := range []error{err, errOfBytes} {
				var unknown *UnknownVersionError
				if got := errors.As(err, &unknown); got != (tc.unknown != "") || got && !strings.Contains(err.Error(), tc.unknown) {
					t.Fatalf("%s: error is %v, want %q", tc.reason, err, tc.unknown)
				}
			}
			if tc.unknown != "" {
				return
			}
			testutil.Check(t, "damage", tc.damage, text.Damage())
			testutil.Check(t, "damage of bytes", tc.damage, secret.Damage())
		})
	}
}

func TestFields(t *testing.T) {
	t.Parallel()
	data := Stamp(map[string]string{"b-2": "two", "b-1": "one", "b-": "none", "c": "", "a-b-3": ""})
	testutil.Check(t, "version", "1", data[VersionKey])
	f := testutil.Get(Read(data))(t)
	testutil.Check(t, "value", "one", f.Get("b-1"))
	testutil.Check(t, "no value", "", f.Get("b-4"))
	testutil.Check(t, "names", []string{"", "1", "2"}, f.After("b-"))
	testutil.Check(t, "no names", []string(nil), f.After("d"))
	testutil.Check(t, "no damage", "", f.Damage())
	f.Damaged("b-1.crt", errors.New("holds no certificate"))
	f.Damaged("b-3.until and c.crt", errors.New("are empty"))
	testutil.Check(t, "damage", "b-1.crt: holds no certificate; b-3.until and c.crt: are empty", f.Damage())
}
