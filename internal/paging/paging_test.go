// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package paging

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/internal/testutil"
)

var errBoom = errors.New("boom")

func TestEach(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
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
	} {
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
			testutil.Expect(t, (tc.wantErr != "" || err == nil) &&
				(tc.wantErr == "" || errors.Is(err, errBoom) && err.Error() == tc.wantErr),
				"%s: error %v, want %q", tc.reason, err, tc.wantErr)
			testutil.Check(t, tc.reason+":", tc.want, got)
		})
	}
}

// TestGoingOn: kube-apiserver answers a page that is requested too late with a token for the rest, or without one.
func TestGoingOn(t *testing.T) {
	t.Parallel()
	expired := func(next string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonExpired,
			ListMeta: metav1.ListMeta{Continue: next}}}
	}
	for name, tc := range map[string]struct {
		reason  string
		answers []error  // of each request
		want    []string // the tokens of the requests
		fails   bool
	}{
		"InTime":  {answers: []error{nil}, want: []string{"a"}},
		"GoesOn":  {answers: []error{expired("b"), nil}, want: []string{"a", "b"}},
		"ForGood": {reason: "it does not say where", answers: []error{expired("")}, want: []string{"a"}, fails: true},
		"Always":  {reason: "it ends", answers: []error{expired("b"), expired("c")}, want: []string{"a", "b"}, fails: true},
		"Other":   {answers: []error{errBoom}, want: []string{"a"}, fails: true},
	} {
		var got []string
		_, err := GoingOn(func(_ context.Context, o metav1.ListOptions) (*corev1.PodList, error) {
			got = append(got, o.Continue)
			return &corev1.PodList{}, tc.answers[len(got)-1]
		})(t.Context(), metav1.ListOptions{Continue: "a"})
		testutil.Check(t, name+" "+tc.reason+": requests", tc.want, got)
		testutil.Expect(t, (err != nil) == tc.fails, "%s %s: error %v, want one: %t", name, tc.reason, err, tc.fails)
	}
}
