// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecrets

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"sa-controller-manager/internal/events"
	"sa-controller-manager/internal/meta"
)

// A cached Secret is deleted, or its token replaced, in three steps: read live what the decision
// depends on, decide again, and write with the version that was read as precondition.

// Live is a token Secret and its account as kube-apiserver has them.
type Live struct {
	// Secret is nil if it is gone or was created again under its name. It holds the token.
	Secret *corev1.Secret
	// Account is nil without a Secret, or if there is no account of the name in the cached one.
	Account *corev1.ServiceAccount
}

// ReadLive reads the cached Secret and its account from kube-apiserver.
func ReadLive(ctx context.Context, client kubernetes.Interface, cached *TokenSecret) (Live, error) {
	secret, err := LiveSecret(ctx, client, cached.ObjectName())
	if err != nil || secret == nil || secret.UID != cached.UID {
		return Live{}, err
	}
	account, err := meta.LiveAccount(ctx, client, cached.Account())
	return Live{Secret: secret, Account: account}, err
}

// LiveSecret reads a Secret from kube-apiserver. It returns nil if there is none.
func LiveSecret(ctx context.Context, client kubernetes.Interface, name cache.ObjectName) (*corev1.Secret, error) {
	secret, err := client.CoreV1().Secrets(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look up secret %s: %w", name, err)
	}
	return secret, nil
}

// Delete deletes this very version of the Secret and reports whether it did: a changed Secret
// stays. A deleted token does not come back, so each deletion is logged at every verbosity and
// recorded as an Event with that reason, unless recorder is nil. why completes "deleted: ...".
func Delete(
	ctx context.Context, client kubernetes.Interface, recorder *events.Recorder, secret *TokenSecret, reason, why string,
) (deleted bool, _ error) {
	err := client.CoreV1().Secrets(secret.Namespace).Delete(ctx, secret.Name,
		metav1.DeleteOptions{Preconditions: meta.Preconditions(secret)})
	if isStale(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("delete token secret %s: %w", secret.ObjectName(), refusal(ctx, client, secret, nil, err))
	}
	klog.FromContext(ctx).Info("Deleted token secret", "secret", klog.KObj(secret), "uid", secret.UID, "reason", reason, "why", why)
	recorder.Normal(secret.Reference(), reason, "deleted: "+why)
	return true, nil
}

// Change is a change of a Secret. Fields that it does not name stay, those that are nil are removed.
type Change struct {
	Labels, Annotations map[string]*string
	Data                map[string][]byte
}

// Patch changes this very version of the Secret (RFC 7386) and returns what is stored then, or nil: a changed
// Secret stays as it is. The error is meta.ErrUnchanged if nothing was stored.
func Patch(ctx context.Context, client kubernetes.Interface, secret *TokenSecret, change Change) (patched *TokenSecret, _ error) {
	patch := struct {
		Metadata meta.PatchMetadata `json:"metadata"`
		Data     map[string][]byte  `json:"data,omitempty"`
	}{meta.PatchOf(secret), change.Data}
	patch.Metadata.Labels, patch.Metadata.Annotations = change.Labels, change.Annotations
	body, err := json.Marshal(patch)
	if err != nil {
		return nil, err
	}
	answer, err := client.CoreV1().Secrets(secret.Namespace).Patch(ctx, secret.Name, types.MergePatchType, body,
		metav1.PatchOptions{FieldManager: meta.FieldManager})
	switch {
	case isStale(err):
		return nil, nil
	case err != nil:
		return nil, refusal(ctx, client, secret, change.Data, err)
	}
	return Observe(answer), meta.CheckChanged(secret, answer)
}

// refusal returns the error of a refused write of a Secret as it may be logged. A policy may quote what the Secret holds, so that
// is read.
func refusal(ctx context.Context, client kubernetes.Interface, secret *TokenSecret, sent map[string][]byte, err error) error {
	if !meta.Refused(err) {
		return meta.SecretError(err)
	}
	live, unread := LiveSecret(ctx, client, secret.ObjectName())
	if unread != nil || live == nil {
		return meta.SecretError(err)
	}
	return meta.SecretError(err, live.Data, sent)
}

// isStale reports whether kube-apiserver has another version of the object, or none.
func isStale(err error) bool { return apierrors.IsConflict(err) || apierrors.IsNotFound(err) }
