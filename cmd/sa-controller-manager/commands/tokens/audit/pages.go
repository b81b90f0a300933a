// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"sa-controller-manager/internal/paging"
)

// maxExpired is how often in a row a list may expire before it has brought anything.
const maxExpired = 5

// secretPages walks a list of Secrets in the order of their keys in etcd.
//
// kube-apiserver goes on with a list for five minutes. If a page comes later it answers 410 Gone,
// mostly with a token that goes on behind the last page in the present state of things. Without one
// the list is begun again, and what was seen is passed over.
type secretPages struct {
	client    kubernetes.Interface
	namespace string
	selector  string // of labels

	last  string // the key of the last Secret that was handed out
	again bool   // whether the list has been begun again
}

// each calls visit with the Secrets of every page. There may be none on it.
func (p *secretPages) each(ctx context.Context, visit func([]corev1.Secret) error) error {
	options := metav1.ListOptions{FieldSelector: "type=" + string(corev1.SecretTypeServiceAccountToken), LabelSelector: p.selector}
	return paging.Each(ctx, "token Secrets", p.list, options, func(page *corev1.SecretList) error { return visit(p.unseen(page)) })
}

func (p *secretPages) list(ctx context.Context, options metav1.ListOptions) (*corev1.SecretList, error) {
	for expired := 0; ; expired++ {
		page, err := p.client.CoreV1().Secrets(p.namespace).List(ctx, options)
		if !apierrors.IsResourceExpired(err) {
			return page, err
		}
		if expired == maxExpired {
			return nil, fmt.Errorf("the list expires again and again: %w", err)
		}
		var status apierrors.APIStatus
		errors.As(err, &status) // it is one: IsResourceExpired has looked into it
		options.Continue = status.Status().Continue
		p.again = p.again || options.Continue == ""
	}
}

// unseen takes out of a page what was on one before.
func (p *secretPages) unseen(page *corev1.SecretList) []corev1.Secret {
	secrets := page.Items[:0]
	for i := range page.Items {
		secret := &page.Items[i]
		// A fake apiserver may ignore field selectors, and a real one the type of old Secrets.
		if secret.Type != corev1.SecretTypeServiceAccountToken || p.again && etcdKey(secret) <= p.last {
			continue
		}
		secrets = append(secrets, *secret)
	}
	if len(secrets) > 0 {
		p.last = etcdKey(&secrets[len(secrets)-1])
	}
	return secrets
}

// etcdKey orders Secrets as lists do.
func etcdKey(secret *corev1.Secret) string { return secret.Namespace + "/" + secret.Name }
