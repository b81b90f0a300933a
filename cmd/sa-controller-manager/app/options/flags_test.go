// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"encoding/json"
	"strings"
	"testing"

	"sa-controller-manager/admission/serviceaccount"
	"sa-controller-manager/internal/testutil"
)

// givenFlags are one flag of each kind and all that once lost their value, each with one that is
// not its default.
func givenFlags() map[string]string {
	return map[string]string{
		"pod-token":                   "secret",
		"limit-secret-references":     "true",
		"webhook-bind-address":        "192.0.2.1",
		"webhook-timeout":             "7s",
		"kube-api-burst":              "77",
		"service-account-issuer":      "[https://a]",
		"feature-gates":               ":A=true",
		"disabled-metrics":            "[a]",
		"v":                           "3",
		"concurrent-disruption-syncs": "5",
	}
}

// parseGiven is parse of givenFlags. Brackets are how a list is shown.
func parseGiven(t *testing.T) *Options {
	t.Helper()
	var args []string
	for name, value := range givenFlags() {
		args = append(args, "--"+name+"="+strings.Trim(value, "[]:"))
	}
	return parse(t, args...)
}

// configOf is what /configz shows of o.
func configOf(t *testing.T, o *Options) string {
	t.Helper()
	shown := testutil.Get(json.Marshal(o))(t)
	return string(shown)
}

func TestFlagsTwice(t *testing.T) {
	t.Parallel()
	o := parseGiven(t)
	want := configOf(t, o)
	sets := o.Flags()
	testutil.Check(t, "options after a second Flags", want, configOf(t, o))
	if !sets.FlagSets["admission plugin"].Changed("pod-token") {
		t.Error("a second Flags does not know what was given")
	}
	if got := o.Admission.Plugin(); got.Mode != serviceaccount.Secret || !got.LimitSecretReferences {
		t.Errorf("the flags are lost: %+v", got)
	}
	sets.FlagSet("of the caller")
	if _, shared := o.Flags().FlagSets["of the caller"]; shared {
		t.Error("one caller adds to the flag sets of another")
	}
}
