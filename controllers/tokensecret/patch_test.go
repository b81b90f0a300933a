// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecret

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"sa-controller-manager/internal/meta"
)

// TestReferencePatches applies the patches as kube-apiserver does.
func TestReferencePatches(t *testing.T) {
	t.Parallel()
	type change func(*corev1.ServiceAccount, string) (ReferencePatch, error)
	cases := map[string]struct {
		reason string
		change change
		has    []string
		want   []string
	}{
		"First":                 {change: ReferenceFirst, want: []string{"new"}},
		"FirstOfOthers":         {change: ReferenceFirst, has: []string{"b", "a", "c"}, want: []string{"new", "b", "a", "c"}},
		"FirstAlreadyThere":     {change: ReferenceFirst, reason: "it may be there, and last", has: []string{"b", "a", "new"}, want: []string{"new", "b", "a"}},
		"FirstBesideNameless":   {change: ReferenceFirst, reason: "a list with such an entry cannot be merged", has: []string{"b", "", "new"}, want: []string{"new", "b", ""}},
		"Added":                 {change: addReference, has: []string{"b", "a"}, want: []string{"new", "b", "a"}},
		"AddedBesideNameless":   {change: addReference, reason: "a list with such an entry cannot be merged", has: []string{"", "a", ""}, want: []string{"new", "", "a", ""}},
		"Removed":               {change: removeReference, has: []string{"b", "new", "a"}, want: []string{"b", "a"}},
		"RemovedBesideNameless": {change: removeReference, reason: "a list with such an entry cannot be merged", has: []string{"new", "", "a"}, want: []string{"", "a"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := account(referencing(tc.has...))
			patch, err := tc.change(before, "new")
			if err != nil {
				t.Fatal(err)
			}
			client := fake.NewClientset(before)
			after, err := client.CoreV1().ServiceAccounts(testNamespace).Patch(t.Context(), "app", patch.Type, patch.Body, metav1.PatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, ref := range after.Secrets {
				got = append(got, ref.Name)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: references (-want +got):\n%s", tc.reason, diff)
			}
			var sent struct{ Metadata meta.PatchMetadata }
			if err := json.Unmarshal(patch.Body, &sent); err != nil || sent.Metadata.UID != before.UID || sent.Metadata.ResourceVersion != before.ResourceVersion {
				t.Errorf("the patch is for any version: %s (%v)", patch.Body, err)
			}
		})
	}
}
