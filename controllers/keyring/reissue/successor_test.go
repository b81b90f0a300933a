// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reissue

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/testutil"
)

// TestSuccessorKeepsWhatAPersonHasSet: what decides on the life of a Secret decides on that of its
// successor, too.
func TestSuccessorKeepsWhatAPersonHasSet(t *testing.T) {
	t.Parallel()
	owner := metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "App", Name: "shop", UID: "u", Controller: new(true)}
	set := func(secret *corev1.Secret) {
		owned := owner
		owned.BlockOwnerDeletion = new(true)
		secret.OwnerReferences = []metav1.OwnerReference{owned}
		metav1.SetMetaDataLabel(&secret.ObjectMeta, "app", "shop")
		metav1.SetMetaDataLabel(&secret.ObjectMeta, tokensecrets.LastUsedLabel, "2026-01-01")
		secret.Annotations["example.com/own"] = "stays behind"
		secret.Annotations[tokensecrets.KeepAnnotation] = "true"
	}
	for name, tc := range map[string]struct {
		reason string
		old    *corev1.Secret
		lists  []string
		want   map[string]string // labels
	}{
		"Ours": {
			"the cleaner knows it by our label", tokenSecret("old", set), []string{"old"},
			map[string]string{"app": "shop", tokensecrets.AutoCreatedLabel: "true"},
		},
		"UsersInTheList": {
			"the cleaner judges what the list names", tokenSecret("old", userMade, set, mode(modeSideBySide)), []string{"old"},
			map[string]string{"app": "shop", tokensecrets.AutoCreatedLabel: "true"},
		},
		"UsersAlone": {
			"the cleaner leaves it alone", tokenSecret("old", userMade, set, mode(modeSideBySide)), nil,
			map[string]string{"app": "shop"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			named := account(referencing(tc.lists...))
			got := successorOf(&tokensecrets.Live{Secret: tc.old, Account: named}, "new")
			testutil.Check(t, tc.reason+": labels", tc.want, got.Labels)
			testutil.Check(t, tc.reason+": owners", []metav1.OwnerReference{owner}, got.OwnerReferences)
			testutil.Check(t, tc.reason+": annotations", map[string]string{
				corev1.ServiceAccountNameKey: "app", corev1.ServiceAccountUIDKey: testUID,
				tokensecrets.ReplacesAnnotation: "old/" + string(tc.old.UID), tokensecrets.KeepAnnotation: "true",
			}, got.Annotations)
		})
	}
}
