// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"sa-controller-manager/admission"
	"sa-controller-manager/admission/serviceaccount"
)

func TestValidateAdmission(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		change func(*Admission)
		want   []string
	}{
		"Projected": {change: func(o *Admission) { o.PodToken = serviceaccount.Projected }},
		"Secret":    {change: func(o *Admission) { o.PodToken = serviceaccount.Secret }},
		"UnknownToken": {
			change: func(o *Admission) { o.PodToken = "none" },
			want:   []string{`--pod-token "none" must be one of "projected", "secret"`},
		},
		"UnknownPlugin": {
			reason: "only the registry knows the names, and the start-up asks it",
			change: func(o *Admission) { o.Selection.Enable = []string{"LimitRanger"} },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := New()
			tc.change(&o.Admission)
			if diff := cmp.Diff(tc.want, texts(o.Validate())); diff != "" {
				t.Errorf("%s\nproblems (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestAdmissionFlags(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		args []string
		want admission.Selection
	}{
		"None":        {},
		"Enable":      {args: []string{"--enable-admission-plugins=A,B"}, want: admission.Selection{Enable: []string{"A", "B"}}},
		"EnableTwice": {args: []string{"--enable-admission-plugins=A", "--enable-admission-plugins=B"}, want: admission.Selection{Enable: []string{"A", "B"}}},
		"Disable":     {args: []string{"--disable-admission-plugins=A"}, want: admission.Selection{Disable: []string{"A"}}},
		"TheOlderOne": {args: []string{"--admission-control=B,A"}, want: admission.Selection{Exact: []string{"B", "A"}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, parse(t, tc.args...).Admission.Selection); diff != "" {
				t.Errorf("selection (-want +got):\n%s", diff)
			}
		})
	}
}

// The file and the flags may both say something; a flag that is not given says nothing.
func TestAdmissionFlagsOverrideTheConfiguration(t *testing.T) {
	t.Parallel()
	file := serviceaccount.Config{
		Mode: serviceaccount.Secret, LimitSecretReferences: true, StrictMountableSecrets: true,
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
		"Strict": {
			args: []string{"--strict-mountable-secrets=false"},
			want: without(func(c *serviceaccount.Config) { c.StrictMountableSecrets = false }),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := parse(t, tc.args...).Admission
			if diff := cmp.Diff(tc.want, o.apply(file)); diff != "" {
				t.Errorf("configuration (-want +got):\n%s", diff)
			}
		})
	}
}

// Lists of plugins are copied from kube-apiserver's flags.
func TestPluginsThatStayInAPIServer(t *testing.T) {
	t.Parallel()
	args := []string{"--enable-admission-plugins=LimitRanger,AlwaysDeny,NamespaceExists"}
	o := parse(t, args...)
	if problems := texts(o.Validate()); len(problems) > 0 {
		t.Errorf("they are refused: %q", problems)
	}
	if diff := cmp.Diff([]string{"ServiceAccount", "AlwaysDeny"}, o.Admission.Enabled()); diff != "" {
		t.Errorf("enabled (-want +got):\n%s", diff)
	}
	want := []string{"the admission plugins LimitRanger, NamespaceExists run in kube-apiserver, and --strict-flags refuses their names"}
	if diff := cmp.Diff(want, texts(parse(t, append(args, "--strict-flags")...).Validate())); diff != "" {
		t.Errorf("with --strict-flags (-want +got):\n%s", diff)
	}
}
