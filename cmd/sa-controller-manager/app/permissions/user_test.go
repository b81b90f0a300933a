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
		status              status
		wantErr             string
		wantGroups          []string
	}{
		"Other": {
			reason: "a user is in one group for certain", asker: "admin", user: "someone", wantGroups: []string{"system:authenticated"},
		},
		"Account": {
			reason: "a service account in two more", asker: "admin", user: "system:serviceaccount:ours:manager",
			wantGroups: []string{"system:authenticated", "system:serviceaccounts", "system:serviceaccounts:ours"},
		},
		"Itself": {reason: "the API server knows its groups", asker: "someone", user: "someone"},
		"OtherUnknown": {
			reason: "an authorizer that fails might grant it", asker: "admin", user: "someone",
			status:     status{EvaluationError: "webhook is down"},
			wantErr:    "2 of 2 permissions could not be checked: ask about the permission to get serviceaccounts/token: webhook is down",
			wantGroups: []string{"system:authenticated"},
		},
		"ItselfUnknown": {
			reason: "likewise", asker: "someone", user: "someone", status: status{EvaluationError: "webhook is down"},
			wantErr: "2 of 2 permissions could not be checked: ask about the permission to get serviceaccounts/token: webhook is down",
		},
		"Denied": {
			reason: "another one has decided", asker: "someone", user: "someone",
			status: status{Denied: true, EvaluationError: "webhook is down"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			// Whatever is asked for is not granted.
			client.PrependReactor("create", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
				switch review := action.(clienttesting.CreateAction).GetObject().DeepCopyObject().(type) {
				case *authorizationv1.SubjectAccessReview:
					review.Status = tc.status
					return true, review, nil
				case *authorizationv1.SelfSubjectAccessReview:
					review.Status = tc.status
					return true, review, nil
				}
				return false, nil, nil
			})
			client.PrependReactor("create", "selfsubjectreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
				review := &authenticationv1.SelfSubjectReview{}
				review.Status.UserInfo.Username = tc.asker
				return true, review, nil
			})
			report := CheckUser(t.Context(), client, tc.user, accesses)
			testutil.CheckError(t, tc.reason, tc.wantErr, report.Err())
			if report.User != tc.user || (tc.wantErr == "") != (len(report.Missing()) == len(accesses)) {
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
