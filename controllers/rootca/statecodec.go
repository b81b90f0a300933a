// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"

	"sa-controller-manager/internal/stateobject"
)

// The state is a Secret, because a user who may write Secrets of kube-system already controls the
// cluster: a certificate that is written into the state while no process leads is published
// everywhere as a previous root CA. The manifests of the permissions create the Secret, because
// RBAC cannot restrict create to a name.
const (
	StateNamespace = metav1.NamespaceSystem
	StateName      = "sa-controller-manager-root-ca" // in manifests/permissions, too
)

// The keys of the state. Each previous certificate has two, with the same text between prefix and
// suffix: the certificate in PEM, and the end of its overlap (RFC 3339).
const (
	keyCurrent     = "current.crt"
	previousPrefix = "previous-"
	suffixCert     = ".crt"
	suffixUntil    = ".until"
)

// decode returns the readable part of the state's Secret, which comes empty, and describes the damage.
// A previous certificate whose end cannot be read is kept as long as one whose overlap begins now.
func decode(object *corev1.Secret, now time.Time, overlap time.Duration) (s state, damage string, err error) {
	if len(object.Data) == 0 {
		return state{}, "", nil
	}
	fields, err := stateobject.Read(object.Data)
	if err != nil {
		return state{}, "", fmt.Errorf("use secret %s/%s: %w: run the newer version, or empty the Secret to drop the overlapping certificates",
			StateNamespace, StateName, err)
	}
	if current, err := ParseBundle(fields.Get(keyCurrent)); err != nil {
		fields.Damaged(keyCurrent, err)
	} else {
		s.file = current
	}
	for _, name := range fields.Between(previousPrefix, suffixCert) {
		keyCert, keyUntil := previousPrefix+name+suffixCert, previousPrefix+name+suffixUntil
		certificates, err := cert.ParseCertsPEM(fields.Get(keyCert))
		if err != nil {
			fields.Damaged(keyCert, errors.New("holds no certificate"))
			continue
		}
		until, err := time.Parse(time.RFC3339, string(fields.Get(keyUntil)))
		if err != nil {
			fields.Damaged(keyUntil, errors.New("is no time"))
			until = now.Add(overlap)
		}
		for _, certificate := range certificates {
			s.previous = append(s.previous, previousCert{certificate, ceil(until)})
		}
	}
	return s, fields.Damage(), nil
}

// encode returns the data that decode reads.
func (s state) encode() map[string][]byte {
	data := map[string][]byte{}
	if s.file != nil {
		data[keyCurrent] = s.file.pem
	}
	for _, p := range s.previous {
		name := previousPrefix + fingerprint(p.certificate)
		data[name+suffixCert] = encodePEM(p.certificate)
		data[name+suffixUntil] = []byte(p.until.Format(time.RFC3339))
	}
	return stateobject.Stamp(data)
}

// encodeInto returns a copy of the Secret that holds only the state, nil if the Secret does so
// already.
func (s state) encodeInto(object *corev1.Secret) *corev1.Secret {
	data := s.encode()
	if maps.EqualFunc(object.Data, data, bytes.Equal) {
		return nil
	}
	object = object.DeepCopy()
	object.Data = data
	return object
}
