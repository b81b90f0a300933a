// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"strings"
	"testing"

	"sa-controller-manager/internal/testutil"
)

func TestSelectionNames(t *testing.T) {
	t.Parallel()
	order, on := []string{"A", "B", "C", "D"}, []string{"B", "D"}
	cases := map[string]struct {
		reason    string
		selection Selection
		want      []string
	}{
		"no flag": {reason: "what is on by default", want: []string{"B", "D"}},
		"enable": {
			reason: "in addition, in our order", selection: Selection{Enable: []string{"C", "A"}}, want: []string{"A", "B", "C", "D"},
		},
		"disable": {reason: "taken off", selection: Selection{Disable: []string{"B", "A"}}, want: []string{"D"}},
		"the same": {
			reason: "enabled wins, as upstream, if validation is passed by", selection: Selection{Enable: []string{"B"}, Disable: []string{"B"}},
			want: []string{"B", "D"},
		},
		"elsewhere": {
			reason: "they run in kube-apiserver", selection: Selection{Exact: []string{"NamespaceExists", "D", "LimitRanger", "A"}},
			want: []string{"D", "A"},
		},
		"exact and none": {reason: "given and empty", selection: Selection{Exact: []string{}}, want: []string{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			testutil.Check(t, tc.reason, tc.want, tc.selection.Names(order, on))
		})
	}
}

func TestSelectionValidate(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason    string
		selection Selection
		want      []string
	}{
		"no flag": {reason: "fine"},
		"exact and more": {
			reason: "they exclude each other", selection: Selection{Exact: []string{}, Disable: []string{}},
			want: []string{"--admission-control and --enable-admission-plugins/--disable-admission-plugins are mutually exclusive"},
		},
		"unknown": {
			reason: "the flag is named, and all mistakes at once", selection: Selection{Enable: []string{"X", "Z"}, Disable: []string{"Y"}},
			want: []string{
				`--enable-admission-plugins: admission plugin "X" is not one of A, B`,
				`--enable-admission-plugins: admission plugin "Z" is not one of A, B`,
				`--disable-admission-plugins: admission plugin "Y" is not one of A, B`,
			},
		},
		"elsewhere exact": {
			reason: "as Kubernetes 1.9 had it", selection: Selection{Exact: []string{"NamespaceExists", "A", "LimitRanger", "ResourceQuota"}},
		},
		"unknown exact": {
			reason: "the flag is named", selection: Selection{Exact: []string{"X"}},
			want: []string{`--admission-control: admission plugin "X" is not one of A, B`},
		},
		"overlap": {
			reason: "which is meant?", selection: Selection{Enable: []string{"A"}, Disable: []string{"A"}},
			want: []string{`--enable-admission-plugins and --disable-admission-plugins both name "A"`},
		},
		"exact and twice": {
			reason: "which place is meant?", selection: Selection{Exact: []string{"A", "B", "A"}},
			want: []string{`--admission-control names "A" more than once`},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, err := range tc.selection.Validate(registryOf("A", "B")) {
				problem, _, _ := strings.Cut(err.Error(), "; every other")
				got = append(got, problem)
			}
			testutil.Check(t, tc.reason, tc.want, got)
		})
	}
}
