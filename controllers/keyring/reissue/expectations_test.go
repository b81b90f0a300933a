// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reissue

import (
	"maps"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/internal/testutil"
)

// TestSurveyForgetsWhatIsGone: who makes Secrets that are refused, or re-issued, and deletes them
// again takes no memory for as long as this process leads.
func TestSurveyForgetsWhatIsGone(t *testing.T) {
	t.Parallel()
	old := withOld(t)
	stays, goes := tokenSecret("stays", old), tokenSecret("goes", old)
	forgedStays, forgedGoes := tokenSecret("forged-stays", old, forged(t, "", "")), tokenSecret("forged-goes", old, forged(t, "", ""))
	w := newWorld(t, account(), stays, goes, forgedStays, forgedGoes)
	remembered := func() [2][]types.UID {
		return [2][]types.UID{slices.Sorted(maps.Keys(w.created)), slices.Sorted(maps.Keys(w.refused))}
	}
	testutil.Must(t, w.reissue(t.Context(), app))
	w.survey()
	want := [2][]types.UID{{"uid-goes", "uid-stays"}, {"uid-forged-goes", "uid-forged-stays"}}
	testutil.Check(t, "remembered while all of them are there", want, remembered())
	w.Uncache(t, goes, forgedGoes)
	w.survey()
	testutil.Check(t, "remembered once some are gone", [2][]types.UID{{"uid-stays"}, {"uid-forged-stays"}}, remembered())
}
