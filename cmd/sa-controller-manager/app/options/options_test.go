// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"slices"
	"testing"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
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
	if got, want := o.Keys.Issuer(), "https://new"; got != want {
		t.Errorf("the issuer is %q, want the first one, %q, as in kube-apiserver", got, want)
	}
	if got := parse(t).Keys.Issuer(); got != "" {
		t.Errorf("without a flag the issuer is %q, want that kube-apiserver is asked", got)
	}
	if want := []string{"default", "builder", "deployer"}; !slices.Equal(o.Tokens.ServiceAccounts, want) {
		t.Errorf("service accounts are %q, want %q", o.Tokens.ServiceAccounts, want)
	}
}
