// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokenreissue

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"sa-controller-manager/controllers/tokensecret"
	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/meta"
	"sa-controller-manager/tokens"
)

// act does one step. secrets are those that the step was planned from.
func (c *Controller) act(ctx context.Context, step step, secrets []*tokensecrets.TokenSecret, ring Ring) error {
	var err error
	switch step.action {
	case create:
		err = c.create(ctx, step.Secret, secrets, ring)
	case reference:
		delete(c.made, step.Secret.UID)
		err = c.reference(ctx, step.Secret, step.Successor)
	case overwrite:
		err = c.overwrite(ctx, step.Secret, secrets, ring)
	case discard:
		return c.discard(ctx, step.Secret, secrets, ring)
	case complain:
		c.complain(step.Holder)
	}
	if err != nil {
		mode := tokensecrets.ReissueSideBySide
		if step.action == overwrite {
			mode = tokensecrets.ReissueInPlace
		}
		c.Metrics.reissued(mode, resultFailed)
		return fmt.Errorf("re-issue token secret %s/%s: %w", step.Secret.Namespace, step.Secret.Name, err)
	}
	return nil
}

// create makes the Secret that is to replace cached. It is empty: the token controller
// fills it as any other.
func (c *Controller) create(ctx context.Context, cached *tokensecrets.TokenSecret, secrets []*tokensecrets.TokenSecret, ring Ring) error {
	if named(secrets, c.made[cached.UID].name) {
		delete(c.made, cached.UID) // the cache shows it, and yet another one is due
	}
	made := c.made[cached.UID]
	if !made.at.IsZero() {
		if left := cacheLag - c.Clock.Since(made.at); left > 0 {
			c.loop.AddAfter(keyOf(cached), left)
			return nil
		}
		// Another name is taken only if the Secret is gone or not ours, not if the watch is late.
		switch live, err := c.Client.CoreV1().Secrets(cached.Namespace).Get(ctx, made.name, metav1.GetOptions{}); {
		case err == nil && live.Annotations[tokensecrets.ReplacesAnnotation] == predecessorOf(cached):
			c.made[cached.UID] = creation{name: made.name, at: c.Clock.Now()}
			c.loop.AddAfter(keyOf(cached), cacheLag)
			return nil
		case err != nil && !apierrors.IsNotFound(err):
			return fmt.Errorf("look for its successor %s: %w", made.name, err)
		}
		delete(c.made, cached.UID)
		made = creation{}
	}
	_, account, err := c.confirm(ctx, cached, secrets, ring, Due)
	if err != nil || account == nil {
		return err
	}
	if made.name == "" {
		made.name = tokensecrets.NewName(account.Name, c.NewSuffix())
		c.made[cached.UID] = made
	}
	_, err = c.Client.CoreV1().Secrets(cached.Namespace).Create(ctx, successorOf(cached, account, made.name), metav1.CreateOptions{FieldManager: meta.FieldManager})
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), apierrors.IsNotFound(err):
		delete(c.made, cached.UID)
		return nil // nothing is owed in a namespace that is going
	case apierrors.IsAlreadyExists(err):
		// Either an earlier try has succeeded, which the cache will show, or the name is
		// taken: if the cache shows nothing in time, another one is chosen.
	case err != nil:
		return fmt.Errorf("create secret %s: %w", made.name, err)
	}
	c.made[cached.UID] = creation{name: made.name, at: c.Clock.Now()}
	c.loop.AddAfter(keyOf(cached), cacheLag)
	klog.FromContext(ctx).V(2).Info("Created token secret to replace one", "secret", klog.KRef(cached.Namespace, made.name), "replaces", klog.KObj(cached))
	return nil
}

func successorOf(secret *tokensecrets.TokenSecret, account *corev1.ServiceAccount, name string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: account.Namespace,
			Name:      name,
			Labels:    map[string]string{tokensecrets.AutoCreatedLabel: "true"},
			Annotations: map[string]string{
				corev1.ServiceAccountNameKey:    account.Name,
				corev1.ServiceAccountUIDKey:     string(account.UID),
				tokensecrets.ReplacesAnnotation: predecessorOf(secret),
			},
		},
		Type: corev1.SecretTypeServiceAccountToken,
	}
}

// predecessorOf is how a Secret is named by the one that replaces it.
func predecessorOf(secret *tokensecrets.TokenSecret) string {
	return tokensecrets.Predecessor{Name: secret.Name, UID: secret.UID}.String()
}

// reference leads everybody who asks the account for a token to the new Secret. Both
// references stay: Pods of the old one go on.
func (c *Controller) reference(ctx context.Context, secret, successor *tokensecrets.TokenSecret) error {
	account, err := meta.LiveAccount(ctx, c.Client, secret.Account())
	if err != nil || account == nil || account.UID != secret.AccountUID || account.DeletionTimestamp != nil {
		return err
	}
	patch, err := tokensecret.ReferenceFirst(account, successor.Name)
	if err != nil {
		return err
	}
	_, err = c.Client.CoreV1().ServiceAccounts(account.Namespace).Patch(ctx, account.Name, patch.Type, patch.Body,
		metav1.PatchOptions{FieldManager: meta.FieldManager})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reference secret %s first: %w", successor.Name, err)
	}
	c.Metrics.reissued(tokensecrets.ReissueSideBySide, resultDone)
	klog.FromContext(ctx).V(2).Info("Re-issued token secret", "secret", klog.KObj(secret), "successor", klog.KObj(successor), "serviceAccount", klog.KObj(account))
	c.tellReplaced(secret, successor)
	return nil
}

// overwrite puts a new token in the place of the old one, in exactly the version of the
// Secret that was read. kube-apiserver compares strings, so the old token is refused
// from then on.
func (c *Controller) overwrite(ctx context.Context, cached *tokensecrets.TokenSecret, secrets []*tokensecrets.TokenSecret, ring Ring) error {
	live, account, err := c.confirm(ctx, cached, secrets, ring, InPlace)
	if err != nil || account == nil {
		return err
	}
	token, err := c.Issuer.Legacy(ctx, tokens.Account{Namespace: account.Namespace, Name: account.Name, UID: string(account.UID)}, live.Name)
	if err != nil {
		return err
	}
	patch, err := tokenPatch(live, token)
	if err != nil {
		return err
	}
	_, err = c.Client.CoreV1().Secrets(live.Namespace).Patch(ctx, live.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: meta.FieldManager})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("overwrite its token: %w", err)
	}
	c.Metrics.reissued(tokensecrets.ReissueInPlace, resultDone)
	klog.FromContext(ctx).Info("Overwrote the token of a token secret, as its annotation asks", "secret", klog.KObj(live), "serviceAccount", klog.KObj(account))
	c.tellOverwritten(live)
	return nil
}

// confirm reads Secret and account live and asks again what the cache has answered. It
// returns no account if the answer is another one now. The token goes no further than
// this function.
func (c *Controller) confirm(ctx context.Context, cached *tokensecrets.TokenSecret, secrets []*tokensecrets.TokenSecret, ring Ring, want Holding) (*tokensecrets.TokenSecret, *corev1.ServiceAccount, error) {
	if c.refused.has(cached) {
		return nil, nil, nil
	}
	if err := c.admit(ctx); err != nil {
		return nil, nil, err
	}
	secret, err := c.Client.CoreV1().Secrets(cached.Namespace).Get(ctx, cached.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("look it up: %w", err)
	}
	account, err := meta.LiveAccount(ctx, c.Client, cached.Account())
	if err != nil {
		return nil, nil, err
	}
	live := tokensecrets.Observe(secret)
	if live.UID != cached.UID || hold(account, live, pairsIn(account, replaceIn(secrets, live), ring), ring).Holding != want {
		return nil, nil, nil // the watch is about to bring it
	}
	if _, err := tokens.VerifyLegacy(string(secret.Data[corev1.ServiceAccountTokenKey]), c.Ring); err != nil {
		c.refused.add(live)
		c.Metrics.reissued(live.ReissueMode(), resultRefused)
		c.tellUnverified(live, err)
		return nil, nil, nil
	}
	return live, account, nil
}

// discard deletes what is left of a re-issue that was cut short, once the apiserver has
// confirmed that nothing references it and nobody has used it.
func (c *Controller) discard(ctx context.Context, cached *tokensecrets.TokenSecret, secrets []*tokensecrets.TokenSecret, ring Ring) error {
	account, err := meta.LiveAccount(ctx, c.Client, cached.Account())
	if err != nil || account == nil || account.UID != cached.AccountUID {
		return err
	}
	secret, err := c.Client.CoreV1().Secrets(cached.Namespace).Get(ctx, cached.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look up secret %s/%s: %w", cached.Namespace, cached.Name, err)
	}
	live := tokensecrets.Observe(secret)
	if live.UID != cached.UID || !isRemains(account, live, pairsIn(account, replaceIn(secrets, live), ring), ring, c.Auto, c.Clock.Now()) {
		return nil
	}
	err = c.Client.CoreV1().Secrets(live.Namespace).Delete(ctx, live.Name, metav1.DeleteOptions{Preconditions: meta.Preconditions(live)})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete secret %s/%s: %w", live.Namespace, live.Name, err)
	}
	klog.FromContext(ctx).Info("Deleted what was left of a re-issue that was cut short", "secret", klog.KObj(live))
	return nil
}

func keyOf(secret *tokensecrets.TokenSecret) key { return key{reissuing, secret.Account()} }
