// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
)

const (
	// askTimeout bounds one question.
	askTimeout = 5 * time.Second
	// askers is how many questions are under way at the same time: all are answered
	// after some six round trips, and kube-apiserver sees no burst.
	askers = 10
)

// Report is the answer to all questions.
type Report struct {
	// User is who asked; empty if the API server does not say.
	User string
	// Answers has one for each access, in their order.
	Answers []Answer
}

// Answer is that to one question.
type Answer struct {
	Access  Access
	Granted bool
	// Err is why it is not known whether the access is granted.
	Err error
}

// Missing are the accesses that are not granted.
func (r Report) Missing() []Access {
	return r.accesses(func(a Answer) bool { return !a.Granted && a.Err == nil })
}

// accesses returns those with certain answers.
func (r Report) accesses(wanted func(Answer) bool) []Access {
	var all []Access
	for _, answer := range r.Answers {
		if wanted(answer) {
			all = append(all, answer.Access)
		}
	}
	return all
}

// Err is nil if every question was answered. It says how many were not, and why the
// first of them was not.
func (r Report) Err() error {
	var first error
	unknown := 0
	for _, answer := range r.Answers {
		if answer.Err == nil {
			continue
		}
		unknown++
		first = cmp.Or(first, answer.Err)
	}
	if first == nil {
		return nil
	}
	return fmt.Errorf("%d of %d permissions could not be checked: %w", unknown, len(r.Answers), first)
}

// Check makes one SelfSubjectAccessReview per access, and a SelfSubjectReview. It returns once all
// questions are answered or ctx has ended.
func Check(ctx context.Context, client kubernetes.Interface, accesses []Access) Report {
	reviews := client.AuthorizationV1().SelfSubjectAccessReviews()
	report := checkAll(ctx, accesses, func(ctx context.Context, spec authorizationv1.SelfSubjectAccessReviewSpec) (status, error) {
		review, err := reviews.Create(ctx, &authorizationv1.SelfSubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
		return review.Status, err
	})
	report.User, _ = whoAmI(ctx, client) // only for people to read
	return report
}

type status = authorizationv1.SubjectAccessReviewStatus

type askFunc func(context.Context, authorizationv1.SelfSubjectAccessReviewSpec) (status, error)

// checkAll asks a few questions at a time. Those after the end of ctx fail.
func checkAll(ctx context.Context, accesses []Access, ask askFunc) Report {
	report := Report{Answers: make([]Answer, len(accesses))}
	workqueue.ParallelizeUntil(context.WithoutCancel(ctx), askers, len(accesses), func(i int) {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		answer, err := ask(ctx, accesses[i].spec())
		if !answer.Allowed && !answer.Denied && answer.EvaluationError != "" { // an authorizer has failed, and no other one grants it
			err = cmp.Or(err, errors.New(answer.EvaluationError))
		}
		if err != nil {
			err = fmt.Errorf("ask about the permission to %s: %w", accesses[i], err)
		}
		report.Answers[i] = Answer{accesses[i], err == nil && answer.Allowed, err}
	})
	return report
}

func (a Access) spec() authorizationv1.SelfSubjectAccessReviewSpec {
	if a.Path != "" {
		return authorizationv1.SelfSubjectAccessReviewSpec{
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: a.Verb, Path: a.Path},
		}
	}
	resource, subresource, _ := strings.Cut(a.Resource, "/")
	return authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
		Verb: a.Verb, Group: a.Group, Resource: resource, Subresource: subresource, Namespace: a.Namespace, Name: a.Name,
	}}
}

func whoAmI(ctx context.Context, client kubernetes.Interface) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("ask who is asking: %w", err)
	}
	return review.Status.UserInfo.Username, nil
}
