// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"testing"

	"sa-controller-manager/admission/serviceaccount"
	"sa-controller-manager/internal/testutil"
)

// The file and the flags may both say something; a flag that is not given says nothing.
func TestAdmissionFlagsOverrideTheConfiguration(t *testing.T) {
	t.Parallel()
	file := serviceaccount.Config{
		Mode: serviceaccount.Secret, LimitSecretReferences: true,
		MountServiceAccountToken: true, RequireAPIToken: true,
	}
	without := func(change func(*serviceaccount.Config)) serviceaccount.Config {
		config := file
		change(&config)
		return config
	}
	cases := map[string]struct {
		args []string
		want serviceaccount.Config
	}{
		"NotGiven": {want: file},
		"PodToken": {
			args: []string{"--pod-token=projected"},
			want: without(func(c *serviceaccount.Config) { c.Mode = serviceaccount.Projected }),
		},
		"Limit": {
			args: []string{"--limit-secret-references=false"},
			want: without(func(c *serviceaccount.Config) { c.LimitSecretReferences = false }),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := parse(t, tc.args...).Admission
			testutil.Check(t, "configuration", tc.want, o.apply(file))
		})
	}
}

// Lists of plugins are copied from kube-apiserver's flags.
func TestPluginsThatStayInAPIServer(t *testing.T) {
	t.Parallel()
	o := parse(t, "--enable-admission-plugins=LimitRanger,AlwaysDeny,NamespaceExists")
	testutil.Check(t, "enabled", []string{"ServiceAccount", "AlwaysDeny"}, o.Admission.Enabled())
}
