// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"crypto/x509"
	"errors"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/internal/pki"
	"sa-controller-manager/internal/stateobject"
)

// The keys of the Secret. All values are PEM, except the version.
const (
	keyActiveCert   = "ca.crt"
	keyActiveKey    = "ca.key"
	keyNextCert     = "next.crt"
	keyNextKey      = "next.key"
	keyPreviousCert = "previous.crt"
)

// state is the content of the Secret. It is immutable; plan copies it.
type state struct {
	active   *authority        // signs leaves
	next     *authority        // announced, signs nothing yet
	previous *x509.Certificate // other replicas may still serve its leaves
}

// read returns what is intact in secret. Its error is a stateobject.UnknownVersionError, with which nothing is
// read, or describes the damage.
func read(secret *corev1.Secret) (s state, err error) {
	fields, err := stateobject.Read(secret.Data)
	if err != nil {
		return s, err
	}
	if s.active, err = readAuthority(fields.Get(keyActiveCert), fields.Get(keyActiveKey)); err != nil {
		fields.Damaged(keyActiveCert+" and "+keyActiveKey, err)
	}
	if len(fields.Get(keyNextCert))+len(fields.Get(keyNextKey)) > 0 {
		if s.next, err = readAuthority(fields.Get(keyNextCert), fields.Get(keyNextKey)); err != nil {
			fields.Damaged(keyNextCert+" and "+keyNextKey, err)
		}
	}
	if content := fields.Get(keyPreviousCert); len(content) > 0 {
		if s.previous, err = readCA(content); err != nil {
			fields.Damaged(keyPreviousCert, err)
		}
	}
	if damage := fields.Damage(); damage != "" {
		return s, errors.New(damage)
	}
	return s, nil
}

// bundle returns the caBundle, the active CA first.
func (s state) bundle() []byte {
	var bundle bytes.Buffer
	bundle.Write(pki.CertPEM(s.active.cert))
	if s.next != nil {
		bundle.Write(pki.CertPEM(s.next.cert))
	}
	if s.previous != nil {
		bundle.Write(pki.CertPEM(s.previous))
	}
	return bundle.Bytes()
}

// writeInto returns a copy of secret with the state. Other keys are kept.
func (s state) writeInto(secret *corev1.Secret) (*corev1.Secret, error) {
	secret = secret.DeepCopy()
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	for _, key := range []string{keyNextCert, keyNextKey, keyPreviousCert} {
		delete(secret.Data, key)
	}
	stateobject.Stamp(secret.Data)
	var err error
	secret.Data[keyActiveCert] = pki.CertPEM(s.active.cert)
	if secret.Data[keyActiveKey], err = pki.KeyPEM(s.active.key); err != nil {
		return nil, err
	}
	if s.next != nil {
		secret.Data[keyNextCert] = pki.CertPEM(s.next.cert)
		if secret.Data[keyNextKey], err = pki.KeyPEM(s.next.key); err != nil {
			return nil, err
		}
	}
	if s.previous != nil {
		secret.Data[keyPreviousCert] = pki.CertPEM(s.previous)
	}
	return secret, nil
}

func emptySecret() *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: SecretNamespace, Name: SecretName},
		Type:       corev1.SecretTypeOpaque,
	}
}
