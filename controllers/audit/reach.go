// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"sa-controller-manager/tokens"
)

// Reach is how far an account reaches over the whole cluster.
type Reach string

const (
	// Everything means: any verb on any resource.
	Everything Reach = "everything"
	// AllSecrets means: it reads the Secrets of all namespaces.
	AllSecrets Reach = "all-secrets"
	// Limited means: neither.
	Limited Reach = "limited"
)

type reach struct {
	reach Reach
	by    string
}

// reachOf asks kube-apiserver, so that every authorizer counts. Reading is to list, to get by name or to watch: each
// gives the content. Denied all three, an account cannot be cluster-admin: most accounts cost three requests.
func reachOf(ctx context.Context, client kubernetes.Interface, account tokens.Account) (reach, error) {
	for _, verb := range []string{"list", "get", "watch"} {
		allowed, by, err := may(ctx, client, account, authorizationv1.ResourceAttributes{Verb: verb, Version: "v1", Resource: "secrets"})
		if err != nil {
			return reach{}, err
		}
		if !allowed {
			continue
		}
		everything, byAll, err := may(ctx, client, account,
			authorizationv1.ResourceAttributes{Verb: "*", Group: "*", Version: "*", Resource: "*"})
		if err != nil {
			return reach{}, err
		}
		if everything {
			return reach{Everything, byAll}, nil
		}
		return reach{AllSecrets, by}, nil
	}
	return reach{reach: Limited}, nil
}

// may asks whether an account has a permission in all namespaces. It is in the groups that its
// token puts it into.
func may(ctx context.Context, client kubernetes.Interface, account tokens.Account,
	attributes authorizationv1.ResourceAttributes) (allowed bool, by string, err error) {
	review, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: account.Subject(), UID: account.UID,
			Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:" + account.Namespace, "system:authenticated"},
			ResourceAttributes: &attributes,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, "", fmt.Errorf("ask what service account %s/%s may do: %w", account.Namespace, account.Name, err)
	}
	return review.Status.Allowed, review.Status.Reason, nil
}
