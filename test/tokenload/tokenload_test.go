// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokenload

import (
	"context"
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sa-controller-manager/internal/testutil"
)

// TestTally: a call that nobody has answered is no refusal, and one refusal counts more than many of those.
func TestTally(t *testing.T) {
	t.Parallel()
	late := answered(fmt.Errorf("post: %w", context.DeadlineExceeded))
	failed, refused := answered(apierrors.NewInternalError(errors.New("x"))), errors.New("refused: unknown key")
	for name, tc := range map[string]struct {
		requests, reviews           []error
		failed, refused, unanswered int
		want                        string
	}{
		"none": {},
		"busy": {
			[]error{late}, []error{late, late}, 0, 0, 3,
			"no token was refused, but 3 calls got no answer within 30s: this machine is too busy; ",
		},
		"refused":  {nil, []error{late, refused, refused}, 0, 2, 1, "refused: unknown key"},
		"answered": {[]error{failed}, []error{late}, 1, 0, 1, "Internal error occurred: x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := New(testutil.WriteFile(t, "ring.json", nil), nil, nil)
			for _, err := range tc.requests {
				l.begin(Token{}, err)
			}
			for _, err := range tc.reviews {
				l.countOf("cp-1", err)
			}
			seen := l.Tally()
			testutil.Check(t, "counts", []int{tc.failed, tc.refused, tc.unanswered},
				[]int{seen.Failed, seen.Refused["cp-1"], seen.Unanswered})
			if err := seen.Err(); tc.want != "" {
				testutil.CheckContains(t, "error", tc.want, fmt.Sprint(err))
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}
