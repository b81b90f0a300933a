// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"

	"sa-controller-manager/internal/meta"
	"sa-controller-manager/tokens"
)

// fillTimeout is how long a Secret may stay empty. Another kube-controller-manager leads within 15 s.
const fillTimeout = 20 * time.Second

// filler is a token controller, and the key that it signs the tokens of Secrets with.
type filler struct{ name, keyID string }

// filler has the token controller that leads fill a Secret of the account, and deletes that again. kube-controller-manager
// reads its key file at its start, so what it has written says more than the file. ok is false if no token controller has
// filled it within fillTimeout.
func (c *Cluster) filler(ctx context.Context) (found filler, ok bool, err error) {
	const what = "see with which key the token controller signs"
	limited, cancel := context.WithTimeout(ctx, fillTimeout)
	defer cancel()
	secrets := c.Client.CoreV1().Secrets(c.Namespace)
	secret, err := secrets.Create(limited, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: "sa-controller-manager-key-probe-" + utilrand.String(8), Annotations: map[string]string{corev1.ServiceAccountNameKey: c.Account},
		},
		Type: corev1.SecretTypeServiceAccountToken,
	}, metav1.CreateOptions{FieldManager: meta.FieldManager})
	if err != nil {
		return found, false, fmt.Errorf("%s: create a token Secret: %w", what, err)
	}
	defer func() {
		deleting, cancel := context.WithTimeout(context.WithoutCancel(ctx), fillTimeout)
		defer cancel()
		if failed := secrets.Delete(deleting, secret.Name, metav1.DeleteOptions{}); err == nil && failed != nil {
			err = fmt.Errorf("delete secret %s/%s, whose token is valid while it exists: %w", c.Namespace, secret.Name, failed)
		}
	}()
	changes, err := secrets.Watch(limited, metav1.SingleObject(secret.ObjectMeta))
	if err != nil {
		return found, false, fmt.Errorf("%s: watch a token Secret: %w", what, err)
	}
	defer changes.Stop()
	for len(secret.Data[corev1.ServiceAccountTokenKey]) == 0 {
		changed, open := <-changes.ResultChan()
		if !open {
			return found, false, context.Cause(ctx)
		}
		if now, is := changed.Object.(*corev1.Secret); is {
			secret = now
		}
	}
	token, err := tokens.Inspect(string(secret.Data[corev1.ServiceAccountTokenKey]))
	return filler{c.leading(ctx, writerOf(secret)), token.KeyID}, err == nil, err
}

// writerOf returns the field manager that has filled a Secret.
func writerOf(secret *corev1.Secret) string {
	for _, entry := range secret.ManagedFields {
		if entry.FieldsV1 != nil && strings.Contains(entry.FieldsV1.GetRawString(), `"f:`+corev1.ServiceAccountTokenKey+`"`) {
			return entry.Manager
		}
	}
	return "a token controller"
}

// leading adds the host on which a controller manager leads, if its Lease has the usual name.
func (c *Cluster) leading(ctx context.Context, name string) string {
	lease, err := c.Client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, name, metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil {
		return name
	}
	host, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
	return name + " on host " + host
}
