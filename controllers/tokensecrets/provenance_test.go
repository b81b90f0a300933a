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
	by := func(manager string, second int64) Writer { return Writer{manager, time.Unix(second, 0)} }
	cases := map[string]struct {
		reason string
		has    []metav1.ManagedFieldsEntry
		want   Writer
	}{
		"Nothing":  {reason: "an apiserver may be told to track nothing"},
		"NoFields": {has: []metav1.ManagedFieldsEntry{wrote("kubectl-edit", "")}},
		"NoData":   {has: []metav1.ManagedFieldsEntry{wrote("kubectl-edit", labelFields)}},
		"Damaged":  {reason: "anybody may write them", has: []metav1.ManagedFieldsEntry{wrote("x", `{"f:data":[]}`), wrote("x", `{"f:data"`)}},
		"OneWroteAll": {
			has:  []metav1.ManagedFieldsEntry{at(wrote(meta.UpstreamFieldManager, all), 1)},
			want: by(meta.UpstreamFieldManager, 1),
		},
		"LastCounts": {
			reason: "two may own a field that both have applied",
			has:    []metav1.ManagedFieldsEntry{at(wrote("late", token), 2), at(wrote("early", token), 1)},
			want:   by("late", 2),
		},
		"NoTime":   {has: []metav1.ManagedFieldsEntry{wrote("somebody", token)}, want: Writer{Manager: "somebody"}},
		"OtherKey": {has: []metav1.ManagedFieldsEntry{at(wrote("early", token), 1), at(wrote("late", onlyCA), 2)}, want: by("early", 1)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			testutil.Check(t, tc.reason, tc.want, TokenWriter(tc.has))
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{ManagedFields: tc.has}}
			if got := Observe(secret).TokenWriter; got != tc.want.Manager {
				t.Errorf("%s: observed %q", tc.reason, got)
			}
		})
	}
}

func TestFilledByTokenController(t *testing.T) {
	t.Parallel()
	const (
		fill  = `{"f:data":{"f:token":{}},"f:metadata":{"f:annotations":{"f:kubernetes.io/service-account.uid":{}}}}`
		uid   = `{"f:metadata":{"f:annotations":{"f:kubernetes.io/service-account.uid":{}}}}`
		name  = `{"f:metadata":{"f:annotations":{".":{},"f:kubernetes.io/service-account.name":{}}}}`
		token = `{"f:data":{"f:token":{}}}`
	)
	cases := map[string]struct {
		reason  string
		entries []metav1.ManagedFieldsEntry
		empty   bool
		want    bool
	}{
		"Us":            {entries: []metav1.ManagedFieldsEntry{wrote("kubectl-create", name), wrote(meta.FieldManager, fill)}, want: true},
		"Upstream":      {entries: []metav1.ManagedFieldsEntry{wrote(meta.UpstreamFieldManager, fill), wrote("kubectl-create", name)}, want: true},
		"OneAfterOther": {reason: "a takeover came between", entries: []metav1.ManagedFieldsEntry{wrote(meta.UpstreamFieldManager, uid), wrote(meta.FieldManager, token)}, want: true},
		"NoToken":       {reason: "none was issued", entries: []metav1.ManagedFieldsEntry{wrote(meta.FieldManager, uid)}, empty: true, want: true},
		"UsersToken":    {entries: []metav1.ManagedFieldsEntry{wrote("kubectl-create", token), wrote(meta.FieldManager, uid)}},
		"UsersUID":      {entries: []metav1.ManagedFieldsEntry{wrote("kubectl-create", uid), wrote(meta.FieldManager, token)}},
		"UIDOfBoth":     {reason: "who applies the same value owns it too", entries: []metav1.ManagedFieldsEntry{wrote(meta.FieldManager, fill), wrote("kubectl", uid)}},
		"Nobody":        {reason: "an apiserver may be told to track nothing"},
		"NobodyAndNone": {empty: true},
		"NoFields":      {entries: []metav1.ManagedFieldsEntry{wrote(meta.FieldManager, "")}},
		"Damaged":       {reason: "anybody may write them", entries: []metav1.ManagedFieldsEntry{wrote(meta.FieldManager, `{"f:metadata":[]}`), wrote(meta.FieldManager, `{"f:metadata"`)}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{ManagedFields: tc.entries}}
			if !tc.empty {
				secret.Data = map[string][]byte{corev1.ServiceAccountTokenKey: []byte("x")}
			}
			if got := FilledByTokenController(secret); got != tc.want {
				t.Errorf("%s: got %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}
