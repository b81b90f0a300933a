// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"sa-controller-manager/internal/atomicfile"
)

// readFile returns the Secret in the file, nil if there is no file. Any other content is damage.
func readFile(path string) (*corev1.Secret, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the serving CA: %w", err)
	}
	secret := &corev1.Secret{}
	if json.Unmarshal(data, secret) != nil {
		return &corev1.Secret{}, nil //nolint:nilerr // damage is replaced
	}
	return secret, nil
}

func (m *Managed) writeFile(ctx context.Context, decided decision) error {
	secret, err := decided.wanted.writeInto(emptySecret())
	if err != nil {
		return err
	}
	secret.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}
	data, err := json.Marshal(secret)
	if err != nil {
		return errors.New("encode the serving CA")
	}
	if err := atomicfile.Write(m.config.File, data, 0o600); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Wrote the serving CA", "file", m.config.File, "reason", decided.reason)
	m.loop.Add(SecretName) // nothing else announces the change
	return nil
}
