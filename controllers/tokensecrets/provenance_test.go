// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecrets

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/internal/meta"
	"sa-controller-manager/internal/testutil"
)

func TestTokenWriter(t *testing.T) {
	t.Parallel()
	const (
		all    = `{"f:data":{".":{},"f:ca.crt":{},"f:namespace":{},"f:token":{}},"f:metadata":{"f:annotations":{}}}`
		token  = `{"f:data":{"f:token":{}}}`
		onlyCA = `{"f:data":{"f:ca.crt":{}}}`
	)
	at := func(entry metav1.ManagedFieldsEntry, second int64) metav1.ManagedFieldsEntry {
		entry.Time = &metav1.Time{Time: time.Unix(second, 0)}
		return entry
	}
	cases := map[string]struct {
		reason string
		has    []metav1.ManagedFieldsEntry
		want   string
	}{
		"Nothing":  {reason: "an apiserver may be told to track nothing"},
		"NoFields": {has: []metav1.ManagedFieldsEntry{wrote("kubectl-edit", "")}},
		"NoData":   {has: []metav1.ManagedFieldsEntry{wrote("kubectl-edit", labelFields)}},
		"Damaged":  {reason: "anybody may write them", has: []metav1.ManagedFieldsEntry{wrote("x", `{"f:data":[]}`), wrote("x", `{"f:data"`)}},
		"OneWroteAll": {
			has:  []metav1.ManagedFieldsEntry{at(wrote(meta.UpstreamFieldManager, all), 1)},
			want: meta.UpstreamFieldManager,
		},
		"LastCounts": {
			reason: "two may own a field that both have applied",
			has:    []metav1.ManagedFieldsEntry{at(wrote("late", token), 2), at(wrote("early", token), 1)},
			want:   "late",
		},
		"NoTime":   {has: []metav1.ManagedFieldsEntry{wrote("somebody", token)}, want: "somebody"},
		"OtherKey": {has: []metav1.ManagedFieldsEntry{at(wrote("early", token), 1), at(wrote("late", onlyCA), 2)}, want: "early"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{ManagedFields: tc.has}}
			testutil.Check(t, tc.reason, tc.want, Observe(secret).TokenWriter)
		})
	}
}
