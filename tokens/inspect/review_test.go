// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect_test

import (
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/tokens/inspect"
)

// TestAskSendsWhatWasGiven: kube-apiserver compares strings, and what it does not take for a token
// may be another secret.
func TestAskSendsWhatWasGiven(t *testing.T) {
	t.Parallel()
	token := legacy(t)
	for name, tc := range map[string]struct {
		token string
		sent  bool
	}{"as issued": {token, true}, "spaced": {token[:3] + "\t" + token[3:], true}, "no token": {"CANARY", false}} {
		t.Run(name, func(t *testing.T) {
			var got, want []string
			client := fake.NewClientset()
			client.PrependReactor("create", "tokenreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
				review := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview)
				got = append(got, review.Spec.Token)
				return true, review, nil
			})
			if tc.sent {
				want = []string{tc.token}
			}
			review, err := inspect.Ask(t.Context(), client.AuthenticationV1().TokenReviews(), tc.token)
			testutil.Expect(t, err == nil && (review != nil) == tc.sent, "%v, %v", review, err)
			testutil.Check(t, "sent", want, got)
		})
	}
}
