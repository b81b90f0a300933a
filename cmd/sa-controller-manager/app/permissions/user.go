// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	"context"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
)

// CheckUser asks the API server for each access whether the user has it. The client's
// own identity must be permitted to create SubjectAccessReviews, unless it is that user.
func CheckUser(ctx context.Context, client kubernetes.Interface, name string, accesses []Access) Report {
	if asker, err := whoAmI(ctx, client); err == nil && asker == name {
		return Check(ctx, client, accesses)
	}
	report := checkAll(ctx, accesses, func(ctx context.Context, spec authorizationv1.SelfSubjectAccessReviewSpec) (status, error) {
		review, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User: name, Groups: groupsOf(name),
				ResourceAttributes: spec.ResourceAttributes, NonResourceAttributes: spec.NonResourceAttributes,
			},
		}, metav1.CreateOptions{})
		return review.Status, err
	})
	report.User = name
	return report
}

// groupsOf are the groups that an authenticated user is in for certain. A review does
// not look them up.
func groupsOf(name string) []string {
	groups := []string{user.AllAuthenticated}
	if namespace, _, err := serviceaccount.SplitUsername(name); err == nil {
		groups = append(groups, serviceaccount.MakeGroupNames(namespace)...)
	}
	return groups
}
