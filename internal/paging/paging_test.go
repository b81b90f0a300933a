// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package paging

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/internal/testutil"
)

var errBoom = errors.New("boom")

func TestEach(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason    string
		pages     []string // the tokens of the pages to come
		listFails int      // at which request, from 1
		visitEnds int      // at which page, from 1
		want      []string
		wantErr   string
	}{
		"OnePage": {pages: []string{""}, want: []string{"list 500  of app=web", "visit"}},
		"ThreePages": {
			pages: []string{"a", "b", ""},
			want:  []string{"list 500  of app=web", "visit", "list 500 a of app=web", "visit", "list 500 b of app=web", "visit"},
		},
		"ListFails": {
			reason: "a part must not be taken for all", pages: []string{"a", ""}, listFails: 2, wantErr: "list Pods: boom",
			want: []string{"list 500  of app=web", "visit", "list 500 a of app=web"},
		},
		"VisitEnds": {pages: []string{"a", ""}, visitEnds: 1, wantErr: "boom", want: []string{"list 500  of app=web", "visit"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			lists, visits := 0, 0
			list := func(_ context.Context, o metav1.ListOptions) (*corev1.PodList, error) {
				got = append(got, fmt.Sprintf("list %d %s of %s", o.Limit, o.Continue, o.LabelSelector))
				if lists++; lists == tc.listFails {
					return nil, errBoom
				}
				return &corev1.PodList{ListMeta: metav1.ListMeta{Continue: tc.pages[lists-1]}}, nil
			}
			err := Each(t.Context(), "Pods", list, metav1.ListOptions{LabelSelector: "app=web"}, func(*corev1.PodList) error {
				got = append(got, "visit")
				if visits++; visits == tc.visitEnds {
					return errBoom
				}
				return nil
			})
			if tc.wantErr == "" && err != nil || tc.wantErr != "" && (!errors.Is(err, errBoom) || err.Error() != tc.wantErr) {
				t.Errorf("%s: error %v, want %q", tc.reason, err, tc.wantErr)
			}
			testutil.Check(t, tc.reason+":", tc.want, got)
		})
	}
}
