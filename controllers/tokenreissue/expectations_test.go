// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokenreissue

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/controllers/tokensecrets"
)

// TestSurveyForgetsWhatIsGone: who makes Secrets that are refused, or re-issued, and deletes them
// again takes no memory for as long as this process leads.
func TestSurveyForgetsWhatIsGone(t *testing.T) {
	t.Parallel()
	old := withOld(t)
	// forged is signed by nobody, and says that it is of the retired key.
	forged := func(secret *corev1.Secret) {
		token := string(secret.Data[corev1.ServiceAccountTokenKey])
		secret.Data[corev1.ServiceAccountTokenKey] = []byte(token[:strings.LastIndex(token, ".")+1] + strings.Repeat("A", 86))
	}
	stays, goes := tokenSecret("stays", old), tokenSecret("goes", old)
	forgedStays, forgedGoes := tokenSecret("forged-stays", old, forged), tokenSecret("forged-goes", old, forged)
	w := newWorld(t, account(), stays, goes, forgedStays, forgedGoes)
	w.lead(t)
	remembered := func() [2][]types.UID {
		return [2][]types.UID{slices.Sorted(maps.Keys(w.created)), slices.Sorted(maps.Keys(w.refused))}
	}
	if err := w.reissue(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	w.survey()
	want := [2][]types.UID{{"uid-goes", "uid-stays"}, {"uid-forged-goes", "uid-forged-stays"}}
	if diff := cmp.Diff(want, remembered()); diff != "" {
		t.Fatalf("remembered while all of them are there (-want +got):\n%s", diff)
	}
	for _, gone := range []*corev1.Secret{goes, forgedGoes} {
		if err := w.secretInformer.GetIndexer().Delete(tokensecrets.Observe(gone)); err != nil {
			t.Fatal(err)
		}
	}
	w.survey()
	if diff := cmp.Diff([2][]types.UID{{"uid-stays"}, {"uid-forged-stays"}}, remembered()); diff != "" {
		t.Errorf("remembered once some are gone (-want +got):\n%s", diff)
	}
}
