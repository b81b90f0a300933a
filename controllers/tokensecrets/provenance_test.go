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

// fieldsV1 as kube-apiserver writes them.
const (
	oneReference = `{"f:secrets":{".":{},"k:{\"name\":\"robot-token-x2x9z\"}":{}}}`
	applied      = `{"f:metadata":{"f:labels":{"f:app":{}}},"f:secrets":{"k:{\"name\":\"robot-token-x2x9z\"}":{".":{},"f:name":{}}}}`
	pullSecret   = `{"f:imagePullSecrets":{".":{},"k:{\"name\":\"robot-token-x2x9z\"}":{}}}`
	labelFields  = `{"f:metadata":{"f:annotations":{".":{},"f:team":{}},"f:labels":{".":{},"f:app":{}}}}`
)

func wrote(manager, fields string) metav1.ManagedFieldsEntry {
	entry := metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1",
	}
	if fields != "" {
		entry.FieldsV1 = metav1.NewFieldsV1(fields)
	}
	return entry
}

// account is one with something in every field that the trimming might lose.
func account(entries ...metav1.ManagedFieldsEntry) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "robot", UID: accountUID, ResourceVersion: "3", Finalizers: []string{"example.com/wait"},
			Labels: map[string]string{"app": "shop"}, Annotations: map[string]string{"team": "blue"}, ManagedFields: entries,
		},
		Secrets:          []corev1.ObjectReference{{Name: "robot-token-x2x9z"}},
		ImagePullSecrets: []corev1.LocalObjectReference{{Name: "registry"}},
	}
}

// TestUnattributedReferences: what doctor shows is what token controllers leave alone.
func TestUnattributedReferences(t *testing.T) {
	t.Parallel()
	robot := account(wrote(meta.FieldManager, oneReference), wrote("kubectl-edit", `{"f:secrets":{"k:{\"name\":\"vault\"}":{}}}`))
	for _, name := range []string{"vault", "pull", "", "robot-token-aaaaa", "vault", "no/name"} {
		robot.Secrets = append(robot.Secrets, corev1.ObjectReference{Name: name})
	}
	got := UnattributedReferences(robot, func(secret string) bool { return secret == "pull" })
	testutil.Check(t, "requests", []string{"vault", "robot-token-aaaaa", "no/name"}, got)
}

func TestWrittenReferences(t *testing.T) {
	t.Parallel()
	const kcm = "kube-controller-manager"
	const two = `{"f:secrets":{".":{},"k:{\"name\":\"robot-token-aaaaa\"}":{},"k:{\"name\":\"robot-token-x2x9z\"}":{}}}`
	type list = []metav1.ManagedFieldsEntry
	for name, tc := range map[string]struct {
		reason  string
		entries list
		want    bool
	}{
		"Ours":        {entries: list{wrote(meta.FieldManager, oneReference)}, want: true},
		"Upstream's":  {entries: list{wrote(kcm, oneReference)}, want: true},
		"Applied":     {reason: "a manager may own the fields of the entry too", entries: list{wrote(meta.FieldManager, applied)}, want: true},
		"SecondEntry": {entries: list{wrote("kubectl-edit", labelFields), wrote(kcm, two)}, want: true},
		"Shared": {
			reason: "another client wants the same entry, too", entries: list{wrote("kubectl-edit", oneReference), wrote(kcm, oneReference)},
		},

		"User's": {reason: "a user's own Secret, maybe not created yet", entries: list{wrote("kubectl-edit", oneReference)}},
		"UsersBesidesOurs": {
			reason:  "we wrote another one",
			entries: list{wrote("kubectl-edit", oneReference), wrote(meta.FieldManager, `{"f:secrets":{"k:{\"name\":\"robot-token-aaaaa\"}":{}}}`)},
		},
		"WholeList": {reason: "before the list had keys, who owned it owned no entry", entries: list{wrote(kcm, `{"f:secrets":{}}`)}},
		"Prefix": {
			reason:  "robot-token-x2x9z begins like the name that was written",
			entries: list{wrote(kcm, `{"f:secrets":{"k:{\"name\":\"robot-token-x2x9z-old\"}":{}}}`)},
		},
		"Pull": {reason: "a pull secret is no token reference", entries: list{wrote(kcm, pullSecret)}},
		"PullBesidesSecrets": {
			reason: "it wrote another reference, and a pull secret of this name", entries: list{
				wrote(kcm, `{"f:imagePullSecrets":{"k:{\"name\":\"robot-token-x2x9z\"}":{}},"f:secrets":{"k:{\"name\":\"robot-token-aaaaa\"}":{}}}`),
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			has := account(tc.entries...)
			testutil.Check(t, tc.reason, tc.want, WrittenReferences(has.ManagedFields).Has("robot-token-x2x9z"))
			kept := KeepWrittenReferences(has.ManagedFields)
			testutil.Check(t, tc.reason+": of the trimmed account", tc.want, WrittenReferences(kept).Has("robot-token-x2x9z"))
			if len(kept) > 1 || tc.want && len(kept) == 0 {
				t.Errorf("%s: %d entries are kept, want one at most", tc.reason, len(kept))
			}
			testutil.Check(t, "kept of what was kept", kept, KeepWrittenReferences(kept))
		})
	}
}

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
	type list = []metav1.ManagedFieldsEntry
	for name, tc := range map[string]struct {
		reason, want string
		has          list
	}{
		"Nothing":     {reason: "an apiserver may be told to track nothing"},
		"NoFields":    {has: list{wrote("kubectl-edit", "")}},
		"NoData":      {has: list{wrote("kubectl-edit", labelFields)}},
		"Damaged":     {reason: "anybody may write them", has: list{wrote("x", `{"f:data":[]}`), wrote("x", `{"f:data"`)}},
		"OneWroteAll": {has: list{at(wrote(meta.UpstreamFieldManager, all), 1)}, want: meta.UpstreamFieldManager},
		"LastCounts": {
			reason: "two may own a field that both have applied", has: list{at(wrote("late", token), 2), at(wrote("early", token), 1)}, want: "late",
		},
		"NoTime":   {has: list{wrote("another", token)}, want: "another"},
		"OtherKey": {has: list{at(wrote("early", token), 1), at(wrote("late", onlyCA), 2)}, want: "early"},
	} {
		t.Run(name, func(t *testing.T) {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{ManagedFields: tc.has}}
			testutil.Check(t, tc.reason, tc.want, Observe(secret).TokenWriter)
		})
	}
}
