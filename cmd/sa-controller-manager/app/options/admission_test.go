// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"testing"

	"sa-controller-manager/admission/serviceaccount"
	"sa-controller-manager/internal/testutil"
)

func TestPlugin(t *testing.T) {
	t.Parallel()
	for args, change := range map[string]func(*serviceaccount.Config){
		"--v=0":                     func(*serviceaccount.Config) {},
		"--pod-token=secret":        func(c *serviceaccount.Config) { c.Mode = serviceaccount.Secret },
		"--limit-secret-references": func(c *serviceaccount.Config) { c.LimitSecretReferences = true },
	} {
		want := serviceaccount.DefaultConfig()
		change(&want)
		testutil.Check(t, args, want, parse(t, args).Admission.Plugin())
	}
}
