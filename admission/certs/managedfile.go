// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"sa-controller-manager/internal/atomicfile"
	"sa-controller-manager/internal/meta"
)

// readFile returns the Secret in the file, nil if there is no file. Any other content is damage.
func (m *Managed) readFile(ctx context.Context) (*corev1.Secret, error) {
	secret, err := decodeFile(m.config.File)
	if errors.Is(err, fs.ErrNotExist) {
		return m.inherit(ctx)
	}
	return secret, err
}

func decodeFile(path string) (*corev1.Secret, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the serving CA: %w", err)
	}
	secret := &corev1.Secret{}
	if json.Unmarshal(data, secret) != nil {
		return &corev1.Secret{}, nil //nolint:nilerr // damage is replaced
	}
	return secret, nil
}

// crossSign has the CA of OldFile, if there is one, certify the active CA in the chain of leaf.
func (m *Managed) crossSign(ctx context.Context, leaf *tls.Certificate) {
	if m.config.OldFile == "" {
		return
	}
	secret, err := decodeFile(m.config.OldFile)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var der []byte
	if err == nil {
		der, err = read(secret).certify(m.held.active.cert)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot use the previous serving CA of this host, "+
			"whose kube-apiserver may refuse Pods until the files are gone", "file", m.config.OldFile)
		return
	}
	leaf.Certificate = append(leaf.Certificate, der)
}

func (r reading) certify(ca *x509.Certificate) ([]byte, error) {
	if r.active == nil {
		return nil, errors.New("it is damaged")
	}
	return r.active.cross(ca)
}

// DeleteSecret deletes the Secret once no replica uses it, unless another client has changed it.
func (m *Managed) DeleteSecret(ctx context.Context) error {
	secret, err := m.secrets().Get(ctx, m.config.Name, metav1.GetOptions{})
	if err == nil && meta.OnlyOurs(secret) {
		err = m.secrets().Delete(ctx, m.config.Name, metav1.DeleteOptions{Preconditions: meta.Preconditions(secret)})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete secret %s/%s: %w", m.config.Namespace, m.config.Name, meta.SecretError(err))
	}
	return nil
}

// inherit begins with the CA of the Secret, if there is one: kube-apiserver may still call the webhook
// by a configuration in the API, whose caBundle has only that. It returns nil if there is none.
func (m *Managed) inherit(ctx context.Context) (*corev1.Secret, error) {
	if m.held != nil {
		return nil, nil
	}
	secret, err := m.secrets().Get(ctx, m.config.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read secret %s/%s: %w", m.config.Namespace, m.config.Name, meta.SecretError(err))
	}
	found := read(secret)
	if !found.whole() {
		return nil, nil
	}
	return secret, m.writeFile(ctx, decision{wanted: found.state, reason: "it is that of the Secret"})
}

func (m *Managed) writeFile(ctx context.Context, decided decision) error {
	secret, err := decided.wanted.writeInto(emptySecret(m.config.Namespace, m.config.Name))
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
	m.loop.Add(m.config.Name) // nothing else announces the change
	return nil
}
