// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"slices"
	"testing"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"

	"sa-controller-manager/internal/testutil"
)

// parse returns the options that args make, unvalidated.
func parse(t *testing.T, args ...string) *Options {
	t.Helper()
	o := New()
	if _, err := o.Parse(args); err != nil {
		t.Fatalf("parse %q: %v", args, err)
	}
	return o
}

// allFlags are those of the root command.
func allFlags() cliflag.NamedFlagSets {
	sets := New().Flags()
	AddGlobalFlags(sets.FlagSet("global"))
	return sets
}

func TestDefaultsAreValid(t *testing.T) {
	t.Parallel()
	if problems := New().Validate(); len(problems) > 0 {
		t.Errorf("the defaults are refused: %v", problems)
	}
}

func TestEveryFlagHasAnOriginAndAMeaning(t *testing.T) {
	t.Parallel()
	for _, fs := range allFlags().FlagSets {
		fs.VisitAll(func(f *pflag.Flag) {
			if OriginOf(f) == "" {
				t.Errorf("--%s has no origin, see SetOrigin", f.Name)
			}
			if f.Usage == "" {
				t.Errorf("--%s has no usage text", f.Name)
			}
		})
	}
}

func TestRepeatableFlags(t *testing.T) {
	t.Parallel()
	o := parse(t,
		"--service-account-key-file=a.pem", "--service-account-key-file=b,with,commas.pem",
		"--service-account-issuer=https://new", "--service-account-issuer=https://old",
		"--service-accounts=default,builder", "--service-accounts=deployer",
	)
	if want := []string{"a.pem", "b,with,commas.pem"}; !slices.Equal(o.Keys.VerifyKeyFiles, want) {
		t.Errorf("key files are %q, want %q: a comma is part of a path", o.Keys.VerifyKeyFiles, want)
	}
	testutil.Check(t, "the first issuer, as in kube-apiserver", "https://new", o.Keys.Issuer())
	testutil.Check(t, "issuer without a flag: kube-apiserver is asked", "", parse(t).Keys.Issuer())
	if want := []string{"default", "builder", "deployer"}; !slices.Equal(o.Tokens.ServiceAccounts, want) {
		t.Errorf("service accounts are %q, want %q", o.Tokens.ServiceAccounts, want)
	}
}
