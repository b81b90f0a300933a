// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/x509"

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

// reading is the result of reading a Secret.
type reading struct {
	state

	// damage describes what could not be read, "" if all could.
	damage string
	// foreign is set if the Secret has another version; then nothing else is read.
	foreign string
}

// read reads everything from secret that is intact.
func read(secret *corev1.Secret) reading {
	fields, err := stateobject.Read(secret.Data)
	if err != nil {
		return reading{foreign: err.Error()}
	}
	var r reading
	if r.active, err = readAuthority(fields.Get(keyActiveCert), fields.Get(keyActiveKey)); err != nil {
		fields.Damaged(keyActiveCert+" and "+keyActiveKey, err)
	}
	if len(fields.Get(keyNextCert))+len(fields.Get(keyNextKey)) > 0 {
		if r.next, err = readAuthority(fields.Get(keyNextCert), fields.Get(keyNextKey)); err != nil {
			fields.Damaged(keyNextCert+" and "+keyNextKey, err)
		}
	}
	if content := fields.Get(keyPreviousCert); len(content) > 0 {
		if r.previous, err = readCA(content); err != nil {
			fields.Damaged(keyPreviousCert, err)
		}
	}
	r.damage = fields.Damage()
	return r
}

// whole reports whether the Secret was read completely.
func (r reading) whole() bool { return r.foreign == "" && r.damage == "" }

// certificates returns those of the caBundle, the active one first.
func (s state) certificates() []*x509.Certificate {
	var all []*x509.Certificate
	if s.active != nil {
		all = append(all, s.active.cert)
	}
	if s.next != nil {
		all = append(all, s.next.cert)
	}
	if s.previous != nil {
		all = append(all, s.previous)
	}
	return all
}

// bundle returns the caBundle, with those of extra that are not nil.
func (s state) bundle(extra ...*x509.Certificate) []byte {
	return bundleOf(append(s.certificates(), extra...))
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
