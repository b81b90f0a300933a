// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"sa-controller-manager/internal/meta"
)

// act writes what is decided. A lost conflict is no error: the other write comes through the watch.
func (m *Managed) act(ctx context.Context, secret *corev1.Secret, decided decision) error {
	if decided.reason == "" {
		return nil
	}
	if !m.writes.AllowN(m.config.Clock.Now(), 1) {
		klog.FromContext(ctx).V(2).Info("Another client edits the serving CA, delaying the repair", "place", m.where(),
			"reason", decided.reason)
		return nil
	}
	if m.config.File != "" {
		return m.writeFile(ctx, decided)
	}
	return m.writeSecret(ctx, secret, decided)
}

// writeSecret creates the Secret if there is none. It records an Event if it repairs what another client
// has changed.
func (m *Managed) writeSecret(ctx context.Context, secret *corev1.Secret, decided decision) error {
	secrets, found := m.config.Client.CoreV1().Secrets(SecretNamespace), secret
	if found == nil {
		found = emptySecret()
	}
	if ptr.Deref(found.Immutable, false) {
		return fmt.Errorf("%s is immutable and has to change: %s. Delete it, and it is created again", m.where(), decided.reason)
	}
	wanted, err := decided.wanted.writeInto(found)
	if err != nil {
		return err
	}
	if secret == nil {
		_, err = secrets.Create(ctx, wanted, metav1.CreateOptions{FieldManager: meta.FieldManager})
	} else {
		_, err = secrets.Update(ctx, wanted, metav1.UpdateOptions{FieldManager: meta.FieldManager})
	}
	if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", m.where(), meta.SecretError(err))
	}
	klog.FromContext(ctx).Info("Wrote the serving CA", "secret", klog.KObj(wanted), "reason", decided.reason)
	if decided.repairs {
		m.config.Recorder.Warn(&corev1.ObjectReference{APIVersion: "v1", Kind: "Secret", Namespace: SecretNamespace, Name: SecretName},
			"ServingCARepaired", "Wrote the serving CA again: "+decided.reason)
	}
	return nil
}
