// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecret

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/meta"
)

// behindRetry is when to look again after the apiserver has shown that the cache is
// behind. The watch normally brings what is newer much earlier.
const behindRetry = time.Second

// lookAgain follows a conflict. Somebody on the way to the apiserver may answer with one
// although the Secret is as it was: then no watch event comes before the resync.
func (c *Controller) lookAgain(secret *tokensecrets.TokenSecret) {
	c.secretLoop.AddAfter(nameOf(secret), behindRetry)
}

// syncOrphan deletes a Secret whose account the cache does not know, once its
// grace is over and the apiserver has confirmed that there is no such account. One that
// was filled for a dead account by mistake is emptied instead.
func (c *Controller) syncOrphan(ctx context.Context, secret *tokensecrets.TokenSecret) error {
	name := nameOf(secret)
	if left := c.graceLeft(secret); left > 0 {
		c.secretLoop.AddAfter(name, left)
		return nil
	}
	live, err := meta.LiveAccount(ctx, c.Client, secret.Account())
	if err != nil {
		return err
	}
	if secret.BelongsTo(live) {
		klog.FromContext(ctx).V(2).Info("Account exists, the cache is behind", "secret", klog.KObj(secret), "serviceAccount", klog.KObj(live))
		c.secretLoop.AddAfter(name, behindRetry)
		return nil
	}
	// The annotations may have changed while the apiserver was asked.
	if now := c.secrets.Get(name); now == nil || version(now) != version(secret) {
		c.secretLoop.Add(name)
		return nil
	}
	misfilled, err := c.misfilled(ctx, secret, live)
	if err != nil {
		return err
	}
	if misfilled {
		return c.unfill(ctx, secret)
	}
	return c.deleteOrphan(ctx, secret, live)
}

// graceLeft is how long the Secret may still wait for its account. The grace
// begins when this process first sees the Secret and anew after every change.
func (c *Controller) graceLeft(secret *tokensecrets.TokenSecret) time.Duration {
	if !mayWait(secret) || c.OrphanGrace <= 0 {
		return 0
	}
	now := c.Clock.Now()
	since, isNew := c.waiting.since(nameOf(secret), version(secret), now)
	if isNew {
		c.Recorder.Warn(secret.Reference(), "ServiceAccountMissing", "Fill", fmt.Sprintf(
			"there is no ServiceAccount %q: the Secret is deleted in %v unless it is created", secret.AccountName, c.OrphanGrace))
	}
	return c.OrphanGrace - now.Sub(since)
}

// liveSecret asks the apiserver itself; nil means that there is no such Secret.
func (c *Controller) liveSecret(ctx context.Context, name cache.ObjectName) (*corev1.Secret, error) {
	secret, err := c.Client.CoreV1().Secrets(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look up secret %s: %w", name, err)
	}
	return secret, nil
}

func (c *Controller) deleteOrphan(ctx context.Context, secret *tokensecrets.TokenSecret, live *corev1.ServiceAccount) error {
	deleted, err := c.delete(ctx, secret, deletedOrphan)
	if err != nil || !deleted {
		return err
	}
	note := fmt.Sprintf("deleted, because there is no ServiceAccount %q", secret.AccountName)
	if live != nil {
		note = fmt.Sprintf("deleted, because it belonged to an earlier ServiceAccount %q with UID %q", secret.AccountName, secret.AccountUID)
	}
	c.Recorder.Normal(secret.Reference(), "OrphanedTokenSecretDeleted", "Delete", note)
	return nil
}

// delete removes the very version of the Secret that was decided on and tells
// whether it did. One that has changed comes back by the watch.
func (c *Controller) delete(ctx context.Context, secret *tokensecrets.TokenSecret, why string) (bool, error) {
	err := c.Client.CoreV1().Secrets(secret.Namespace).Delete(ctx, secret.Name, metav1.DeleteOptions{Preconditions: meta.Preconditions(secret)})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		c.lookAgain(secret)
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("delete token secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	c.written.wrote(secret)
	c.Metrics.deleted.WithLabelValues(why).Inc()
	klog.FromContext(ctx).V(2).Info("Deleted token secret", "secret", klog.KObj(secret), "reason", why)
	return true, nil
}
