// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"regexp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The content of the Secret. All is PEM but the version.
const (
	keySchema       = "schema-version"
	keyActiveCert   = "ca.crt"
	keyActiveKey    = "ca.key"
	keyNextCert     = "next.crt"
	keyNextKey      = "next.key"
	keyPreviousCert = "previous.crt"

	schemaVersion = "1"
)

// versionForm is how every program writes its version. What looks otherwise was not
// written by one.
var versionForm = regexp.MustCompile(`^[1-9][0-9]*$`)

// state is what the Secret holds. It is immutable; plan copies it.
type state struct {
	active   *authority        // signs leaves
	next     *authority        // announced, signs nothing yet
	previous *x509.Certificate // callers may still meet its leaves
}

// reading is what could be read of a Secret.
type reading struct {
	state

	// damage says what could not be read.
	damage []string
	// foreign is a schema version of the future, which this program does not know.
	foreign string
	// outgoing is the certificate of a CA whose key could not be read.
	outgoing *x509.Certificate
}

// read takes everything from secret that is whole.
func read(secret *corev1.Secret) reading {
	var r reading
	switch version := string(secret.Data[keySchema]); {
	case version == schemaVersion:
	case versionForm.MatchString(version):
		return reading{foreign: version}
	case version == "":
		r.damage = append(r.damage, keySchema+" is missing")
	default:
		r.damage = append(r.damage, keySchema+" is no version")
	}
	var err error
	if r.active, err = readAuthority(secret.Data[keyActiveCert], secret.Data[keyActiveKey]); err != nil {
		r.damage = append(r.damage, fmt.Sprintf("%s and %s: %v", keyActiveCert, keyActiveKey, err))
		r.outgoing, _ = readCA(secret.Data[keyActiveCert])
	}
	if len(secret.Data[keyNextCert])+len(secret.Data[keyNextKey]) > 0 {
		if r.next, err = readAuthority(secret.Data[keyNextCert], secret.Data[keyNextKey]); err != nil {
			r.damage = append(r.damage, fmt.Sprintf("%s and %s: %v", keyNextCert, keyNextKey, err))
		}
	}
	if content := secret.Data[keyPreviousCert]; len(content) > 0 {
		if r.previous, err = readCA(content); err != nil {
			r.damage = append(r.damage, fmt.Sprintf("%s: %v", keyPreviousCert, err))
		}
	}
	return r
}

// whole tells whether leaves can be issued from what was read.
func (r reading) whole() bool { return r.foreign == "" && len(r.damage) == 0 }

// certificates are those of the caBundle, the active one first.
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

func (s state) has(certificate *x509.Certificate) bool {
	for _, one := range s.certificates() {
		if one.Equal(certificate) {
			return true
		}
	}
	return false
}

// bundle is the caBundle. It has each of extra too that is not nil nor in it already.
func (s state) bundle(extra ...*x509.Certificate) []byte {
	var all bytes.Buffer
	for _, certificate := range s.certificates() {
		all.Write(certPEM(certificate))
	}
	for _, certificate := range extra {
		if certificate != nil && !s.has(certificate) {
			all.Write(certPEM(certificate))
		}
	}
	return all.Bytes()
}

// writeInto writes the state into a copy of secret, whose other keys stay.
func (s state) writeInto(secret *corev1.Secret) (*corev1.Secret, error) {
	secret = secret.DeepCopy()
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	for _, key := range []string{keyNextCert, keyNextKey, keyPreviousCert} {
		delete(secret.Data, key)
	}
	secret.Data[keySchema] = []byte(schemaVersion)
	var err error
	secret.Data[keyActiveCert] = certPEM(s.active.cert)
	if secret.Data[keyActiveKey], err = s.active.keyPEM(); err != nil {
		return nil, err
	}
	if s.next != nil {
		secret.Data[keyNextCert] = certPEM(s.next.cert)
		if secret.Data[keyNextKey], err = s.next.keyPEM(); err != nil {
			return nil, err
		}
	}
	if s.previous != nil {
		secret.Data[keyPreviousCert] = certPEM(s.previous)
	}
	return secret, nil
}

func emptySecret(namespace, name string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Type:       corev1.SecretTypeOpaque,
	}
}
