// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// What a controller would have to write, by clients that know what is owed and look for
// nothing: the floor of each scenario.

// CompleteNamespace makes what every namespace gets.
func (w *World) CompleteNamespace(ctx context.Context, namespace string) error {
	if err := w.MakeAccount(ctx, namespace, "default"); err != nil {
		return err
	}
	_, err := w.Client.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: RootCAName},
		Data:       map[string]string{"ca.crt": filler(600)},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create the root CA of namespace %s: %w", namespace, err)
	}
	return nil
}

// CompleteSecret writes as much as a token, a root CA and a namespace have. Nobody signs.
func (w *World) CompleteSecret(ctx context.Context, place [2]string) error {
	patch, err := json.Marshal(map[string]any{"data": map[string][]byte{
		corev1.ServiceAccountTokenKey:     []byte(filler(900)),
		corev1.ServiceAccountRootCAKey:    []byte(filler(600)),
		corev1.ServiceAccountNamespaceKey: []byte(place[0]),
	}})
	if err != nil {
		return err
	}
	if _, err := w.Client.CoreV1().Secrets(place[0]).Patch(ctx, place[1], types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("fill Secret %s/%s: %w", place[0], place[1], err)
	}
	return nil
}

// DeleteSecret deletes a Secret.
func (w *World) DeleteSecret(ctx context.Context, place [2]string) error {
	if err := w.Client.CoreV1().Secrets(place[0]).Delete(ctx, place[1], metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete Secret %s/%s: %w", place[0], place[1], err)
	}
	return nil
}

func filler(size int) string { return string(bytes.Repeat([]byte("x"), size)) }
