// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// tamper does something to the registration and awaits that it is repaired.
func (w *World) tamper(ctx context.Context, kind Kind, limit time.Duration, do func(context.Context) error, also func(registered) error) (func(context.Context) error, error) {
	if err := w.awaitRegistered(ctx); err != nil {
		return nil, err
	}
	before, err := w.registration(ctx)
	if err != nil {
		return nil, err
	}
	if err := do(ctx); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return w.awaitRepair(ctx, kind, before, limit, also) }, nil
}

func nothing(registered) error { return nil }

func (w *World) dropMutating(ctx context.Context) error {
	return w.client.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(ctx, configurationName, metav1.DeleteOptions{})
}

func (w *World) dropValidating(ctx context.Context) error {
	return w.client.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(ctx, configurationName, metav1.DeleteOptions{})
}

func deleteMutating(ctx context.Context, w *World, fault Planned) (func(context.Context) error, error) {
	return w.tamper(ctx, fault.Kind, repairLimit, w.dropMutating, nothing)
}

func deleteValidating(ctx context.Context, w *World, fault Planned) (func(context.Context) error, error) {
	return w.tamper(ctx, fault.Kind, repairLimit, w.dropValidating, nothing)
}

// editBundle has kube-apiserver trust somebody else.
func editBundle(ctx context.Context, w *World, fault Planned) (func(context.Context) error, error) {
	stranger, _, err := selfSigned()
	if err != nil {
		return nil, err
	}
	return w.tamper(ctx, fault.Kind, repairLimit, func(ctx context.Context) error {
		return w.patchMutating(ctx, []map[string]any{{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": stranger}})
	}, func(now registered) error {
		for _, bundle := range now.bundles() {
			if bytes.Equal([]byte(bundle), stranger) {
				return errors.New("the caBundle is a stranger's")
			}
		}
		return nil
	})
}

// editRules takes all Pods out.
func editRules(ctx context.Context, w *World, fault Planned) (func(context.Context) error, error) {
	return w.tamper(ctx, fault.Kind, repairLimit, func(ctx context.Context) error {
		return w.patchMutating(ctx, []map[string]any{{"op": "replace", "path": "/webhooks", "value": []any{}}})
	}, nothing)
}

func (w *World) patchMutating(ctx context.Context, operations []map[string]any) error {
	patch, err := json.Marshal(operations)
	if err != nil {
		return err
	}
	_, err = w.client.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Patch(ctx, configurationName, types.JSONPatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("edit the mutating configuration: %w", err)
	}
	return nil
}

// caSecretLimit is how long the serving CA may be away: kube-apiserver goes on to trust
// what its configurations hold.
const caSecretLimit = 10 * time.Second

func deleteCASecret(ctx context.Context, w *World, fault Planned) (func(context.Context) error, error) {
	secrets := w.client.client.CoreV1().Secrets(metav1.NamespaceSystem)
	old, err := secrets.Get(ctx, caSecretName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get the serving CA: %w", err)
	}
	return w.tamper(ctx, fault.Kind, caSecretLimit, func(ctx context.Context) error {
		return secrets.Delete(ctx, caSecretName, metav1.DeleteOptions{})
	}, func(registered) error {
		now, err := secrets.Get(ctx, caSecretName, metav1.GetOptions{})
		if err == nil && now.UID == old.UID {
			err = errors.New("it is still the old Secret")
		}
		return err
	})
}
