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
)

const (
	// pageSize bounds what is in memory at a time.
	pageSize = 500
	// maxExpired is how often in a row a list may expire before it has brought anything.
	maxExpired = 5
)

// secretPages walks a list of Secrets in the order of their keys in etcd.
//
// kube-apiserver goes on with a list for five minutes. If a page comes later it answers 410 Gone, mostly with a token that goes on
// behind the last page in the present state of things. Without one the list is begun again, and what was seen is passed over.
type secretPages struct {
	client    kubernetes.Interface
	namespace string
	options   metav1.ListOptions

	last    string // the key of the last Secret that was handed out
	again   bool   // whether the list has been begun again
	expired int
	done    bool
}

func newSecretPages(client kubernetes.Interface, namespace, selector string) *secretPages {
	return &secretPages{client: client, namespace: namespace, options: metav1.ListOptions{
		FieldSelector: "type=" + string(corev1.SecretTypeServiceAccountToken), LabelSelector: selector, Limit: pageSize,
	}}
}

// next returns the Secrets of the next page. There may be none on it; done tells whether it was the last one.
func (p *secretPages) next(ctx context.Context) ([]corev1.Secret, error) {
	page, err := p.client.CoreV1().Secrets(p.namespace).List(ctx, p.options)
	if apierrors.IsResourceExpired(err) {
		return nil, p.resume(err)
	}
	if err != nil {
		return nil, fmt.Errorf("list token Secrets: %w", err)
	}
	p.expired, p.options.Continue, p.done = 0, page.Continue, page.Continue == ""
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
	return secrets, nil
}

func (p *secretPages) resume(err error) error {
	if p.expired++; p.expired > maxExpired {
		return fmt.Errorf("list token Secrets: the list expires again and again: %w", err)
	}
	var status apierrors.APIStatus
	errors.As(err, &status) // it is one: IsResourceExpired has looked into it
	p.options.Continue = status.Status().Continue
	p.again = p.again || p.options.Continue == ""
	return nil
}

// etcdKey orders Secrets as lists do.
func etcdKey(secret *corev1.Secret) string { return secret.Namespace + "/" + secret.Name }
