// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokencontroller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/meta"
	"sa-controller-manager/internal/reconcile"
)

// errStale is the error of a write to an object of which kube-apiserver has another version, or none. Normally the watch shows
// that soon. While it hangs, the back-off bounds the requests; and a proxy in front of kube-apiserver may answer with a conflict
// although nothing has changed: then no watch event comes before the resync.
var errStale = fmt.Errorf("kube-apiserver has another version of the object: %w", reconcile.ErrStaleCache)

// uncachedRecheck is the delay of the next sync of a Secret whose account exists but is not cached,
// as while a watch hangs. Events of the account queue the Secret as well; this is for an account
// that is deleted before any list or event has shown it.
const uncachedRecheck = time.Minute

// syncOrphan acts on what kube-apiserver has of the account that the cache lacks. If the account exists, the
// Secret is filled. If not, the Secret is deleted after its grace period, if the account is still
// missing then. So is a Secret with the UID of another account than the one it names (upstream: as well),
// whether a user has annotated it or a stale cache had it filled for the previous account.
func (c *Controller) syncOrphan(ctx context.Context, secret *tokensecrets.TokenSecret) error {
	name := secret.ObjectName()
	since, waits := c.waiting.get(name, version(secret))
	if left := c.OrphanGrace - c.Clock.Since(since); waits && left > 0 {
		c.secretLoop.AddAfter(name, left)
		return nil
	}
	live, err := meta.LiveAccount(ctx, c.Client, secret.Account())
	if err != nil {
		return err
	}
	if secret.BelongsTo(live) {
		c.waiting.forget(name)
		c.secretLoop.AddAfter(name, uncachedRecheck)
		return c.fill(ctx, secret, live)
	}
	if mayWait(secret) && !waits && c.OrphanGrace > 0 {
		// The grace period begins when this process first sees the Secret, and again after a change.
		c.waiting.set(name, version(secret), c.Clock.Now())
		c.secretLoop.AddAfter(name, c.OrphanGrace)
		c.Recorder.Warn(secret.Reference(), "ServiceAccountMissing", fmt.Sprintf(
			"there is no ServiceAccount %q: the Secret is deleted in %v unless it is created", secret.AccountName, c.OrphanGrace))
		return nil
	}
	// The annotations may have changed during the request.
	if now := c.secrets.Get(name); now == nil || version(now) != version(secret) {
		c.secretLoop.Add(name)
		return nil
	}
	return c.deleteOrphan(ctx, secret, live)
}

// deletedAccounts is how many deleted accounts are kept.
const deletedAccounts = 16384

// deleteOrphan records no Event if the watch has shown the account being deleted: its user asked for
// that, and the Events of a mass deletion would be as many requests as the deletions.
func (c *Controller) deleteOrphan(ctx context.Context, secret *tokensecrets.TokenSecret, live *corev1.ServiceAccount) error {
	why := fmt.Sprintf("there is no ServiceAccount %q", secret.AccountName)
	if live != nil {
		why = fmt.Sprintf("it has UID %q, and ServiceAccount %q has another one", secret.AccountUID, secret.AccountName)
	}
	recorder := c.Recorder
	if at, shown := c.deleted.Get(secret.AccountUID); shown {
		// A later Secret was restored, and an Event says why it goes. Both versions are revisions of etcd.
		if order, err := resourceversion.CompareResourceVersion(secret.ResourceVersion, at.(string)); err == nil && order < 0 {
			recorder = nil
		}
	}
	deleted, err := tokensecrets.Delete(ctx, c.Client, recorder, secret, reasonOrphan, why)
	if err != nil {
		return c.refused(secret.Reference(), err)
	}
	if !deleted {
		return fmt.Errorf("delete token secret %s: %w", secret.ObjectName(), errStale)
	}
	c.written.wrote(secret, c.Clock.Now())
	c.Metrics.deleted.Inc()
	return nil
}
