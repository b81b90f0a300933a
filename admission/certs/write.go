// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"

	"sa-controller-manager/internal/meta"
)

// act executes the decision. A lost conflict is no error: the other write comes through the watch.
func (m *Managed) act(ctx context.Context, secret *corev1.Secret, decided decision) error {
	if decided.action == keep {
		return nil
	}
	if decided.action == refuse {
		return fmt.Errorf("use %s: %s", m.where(), decided.reason)
	}
	if !m.writes.AllowN(m.config.Clock.Now(), 1) {
		klog.FromContext(ctx).V(2).Info("Another client edits the serving CA, delaying the repair", "place", m.where(), "reason", decided.reason)
		return nil
	}
	if m.config.File != "" {
		return m.writeFile(ctx, decided)
	}
	if decided.action == create {
		return m.create(ctx, decided)
	}
	return m.update(ctx, secret, decided)
}

func (m *Managed) create(ctx context.Context, decided decision) error {
	secret, err := decided.wanted.writeInto(emptySecret(m.config.Namespace, m.config.Name))
	if err != nil {
		return err
	}
	_, err = m.secrets().Create(ctx, secret, metav1.CreateOptions{FieldManager: meta.FieldManager})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("create secret %s/%s: %w", m.config.Namespace, m.config.Name, meta.SecretError(err))
	}
	m.written(ctx, decided.reason, m.held != nil)
	return nil
}

func (m *Managed) update(ctx context.Context, secret *corev1.Secret, decided decision) error {
	wanted, err := decided.wanted.writeInto(secret)
	if err != nil {
		return err
	}
	_, err = m.secrets().Update(ctx, wanted, metav1.UpdateOptions{FieldManager: meta.FieldManager})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("update secret %s/%s: %w", m.config.Namespace, m.config.Name, meta.SecretError(err))
	}
	m.written(ctx, decided.reason, read(secret).damage != "")
	return nil
}

// written logs the write, and records an Event if it repairs what another client has changed.
func (m *Managed) written(ctx context.Context, reason string, repaired bool) {
	klog.FromContext(ctx).Info("Wrote the serving CA", "secret", m.ref(), "reason", reason)
	if repaired {
		m.config.Recorder.Warn(&corev1.ObjectReference{APIVersion: "v1", Kind: "Secret", Namespace: m.config.Namespace, Name: m.config.Name},
			"ServingCARepaired", "Wrote the serving CA again: "+reason)
	}
}

func (m *Managed) secrets() corev1client.SecretInterface {
	return m.config.Client.CoreV1().Secrets(m.config.Namespace)
}

func (m *Managed) ref() klog.ObjectRef { return klog.KRef(m.config.Namespace, m.config.Name) }
