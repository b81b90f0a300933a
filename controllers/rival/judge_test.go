// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rival

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/controllers/rootca"
	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/signing"
)

func TestJudge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	empty := newSecret(t, "mine")
	full := empty.token(us, w.ours).rootCA(us, w.ca)
	mine := cache.NewObjectName("shop", "mine")
	cases := map[string]struct {
		reason        string
		before, after secret
		ca            *rootca.Bundle
		want          sign
	}{
		"KCMFills":           {reason: "whatever its key", before: empty, after: empty.token(kcm, w.theirs), want: sign{act: filled, manager: kcm}},
		"KCMFillsWithOurKey": {reason: "it was faster", before: empty, after: empty.token(kcm, w.ours), want: sign{act: filled, manager: kcm}},
		"StrangerFills":      {reason: "other distributions have other names", before: empty, after: empty.token(stranger, w.theirs), want: sign{act: filled, manager: stranger}},
		"StrangersWithKey":   {reason: "a user with a token of ours", before: empty, after: empty.token(stranger, w.ours)},
		"OtherReplicas":      {reason: "with another Lease and another key", before: empty, after: empty.token(us, w.theirs), want: sign{act: filled, manager: us}},
		"WeFill":             {before: empty, after: empty.token(us, w.ours)},
		"NoTrace":            {reason: "managedFields can be emptied", before: empty, after: empty.token(nobody, w.theirs)},
		"Garbage":            {reason: "a user's nonsense has no key ID", before: empty, after: empty.with(stranger, "token", []byte("hello"))},
		"TokenReplaced":      {reason: "a user's own, over ours", before: full, after: full.token(stranger, w.theirs)},
		"TokenReplacedByKCM": {reason: "KCM never does", before: full, after: full.token(kcm, w.theirs)},
		"HandedOver": {
			reason: "filled by KCM long ago, touched now",
			before: empty.token(kcm, w.theirs), after: empty.token(kcm, w.theirs).change(label),
		},
		"Resync":      {before: empty.token(kcm, w.ours), after: empty.token(kcm, w.ours)},
		"NotOurs":     {reason: "no account could have that name", before: empty.change(renamed), after: empty.change(renamed).token(kcm, w.ours)},
		"Marked":      {reason: "we issue none, a user may", before: empty.change(marked), after: empty.change(marked).token(kcm, w.ours)},
		"Terminating": {before: empty.change(terminating), after: empty.change(terminating).token(kcm, w.ours)},
		"Immutable":   {before: empty.change(immutable), after: empty.change(immutable).token(kcm, w.ours)},
		"AnotherSecret": {
			reason: "of the same name, created with a token: restored, or a user's",
			before: empty, after: empty.token(kcm, w.theirs).change(func(s *corev1.Secret) { s.UID = "another" }),
		},

		"KCMUndoes":       {before: full, after: full.rootCA(kcm, w.otherCA), want: sign{act: undone, manager: kcm}},
		"StrangerUndoes":  {reason: "counted by Secret", before: full, after: full.rootCA(stranger, w.otherCA), want: sign{act: undone, manager: stranger, secret: mine}},
		"OthersUndo":      {before: full, after: full.rootCA(us, w.otherCA), want: sign{act: undone, manager: us, secret: mine}},
		"WeRepair":        {before: full.rootCA(kcm, w.otherCA), after: full.rootCA(kcm, w.otherCA).rootCA(us, w.ca)},
		"KCMRepairs":      {reason: "it has the same root CA", before: full.rootCA(stranger, w.otherCA), after: full.rootCA(stranger, w.otherCA).rootCA(kcm, w.ca)},
		"WasWrongBefore":  {reason: "from before a takeover", before: full.rootCA(kcm, w.otherCA), after: full.rootCA(kcm, w.otherCA).change(label)},
		"Emptied":         {reason: "that asks for a new one", before: full, after: full.with(kcm, "ca.crt", nil)},
		"NoRootCA":        {reason: "we write none", before: full, after: full.rootCA(kcm, w.otherCA), ca: none},
		"Provisional":     {reason: "we replace none now", before: full, after: full.rootCA(kcm, w.otherCA), ca: w.ca.Provisional()},
		"NewBundle":       {reason: "our own former one, and the file has changed since", before: full, after: full.rootCA(us, w.otherCA), ca: w.otherCA},
		"UndoneNoTrace":   {before: full, after: full.rootCA(nobody, w.otherCA)},
		"UndoneAtItsEnds": {before: full.change(terminating), after: full.change(terminating).rootCA(kcm, w.otherCA)},
	}
	keys := signing.NewKeySet(w.ours.Public())
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ca := w.ca
			if tc.ca == none {
				ca = nil
			} else if tc.ca != nil {
				ca = tc.ca
			}
			got := judge(tc.before.observed(), tc.after.observed(), ca, keys)
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(sign{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// none stands for no root CA in a case.
var none = &rootca.Bundle{}

func label(s *corev1.Secret) { s.Labels = map[string]string{tokensecrets.LastUsedLabel: "2026-01-01"} }
func marked(s *corev1.Secret) {
	s.Labels = map[string]string{tokensecrets.InvalidSinceLabel: "2026-01-01"}
}
func renamed(s *corev1.Secret) {
	s.Annotations = map[string]string{corev1.ServiceAccountNameKey: "no name"}
}
func terminating(s *corev1.Secret) { s.DeletionTimestamp = &metav1.Time{} }
func immutable(s *corev1.Secret) {
	yes := true
	s.Immutable = &yes
}
