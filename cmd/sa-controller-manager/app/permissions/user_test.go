// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/internal/testutil"
)

// TestCheckUser asks for others, and as itself where it is that user.
func TestCheckUser(t *testing.T) {
	t.Parallel()
	accesses := []Access{{Verb: "get", Resource: "serviceaccounts/token"}, {Verb: "get", Path: "/x"}}
	for name, tc := range map[string]struct {
		reason, asker, user string
		wantGroups          []string
	}{
		"Other": {"a user is in one group for certain", "admin", "someone", []string{"system:authenticated"}},
		"Account": {"a service account in two more", "admin", "system:serviceaccount:ours:manager", []string{
			"system:authenticated", "system:serviceaccounts", "system:serviceaccounts:ours",
		}},
		"Itself": {"the API server knows its groups", "someone", "someone", nil},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			// Whatever is asked for is not granted.
			client.PrependReactor("create", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
				return true, action.(clienttesting.CreateAction).GetObject(), nil
			})
			client.PrependReactor("create", "selfsubjectreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
				review := &authenticationv1.SelfSubjectReview{}
				review.Status.UserInfo.Username = tc.asker
				return true, review, nil
			})
			report := CheckUser(t.Context(), client, tc.user, accesses)
			if report.User != tc.user || len(report.Missing()) != len(accesses) || report.Err() != nil {
				t.Errorf("%s: %+v, want all missing for %s", tc.reason, report, tc.user)
			}
			for _, action := range client.Actions() {
				review, ok := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
				if ok && tc.wantGroups == nil {
					t.Errorf("%s: it asks for itself as for somebody else", tc.reason)
				}
				if !ok {
					continue
				}
				testutil.Check(t, tc.reason+": user", tc.user, review.Spec.User)
				testutil.Check(t, tc.reason+": groups", tc.wantGroups, review.Spec.Groups)
			}
		})
	}
}
