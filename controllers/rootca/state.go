// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"

	"sa-controller-manager/internal/pki"
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

// The keys of the state.
const (
	keyCurrent  = "current.crt"
	keyPrevious = "previous.crt"
	keyUntil    = "until" // RFC 3339
)

// maxUnion is the largest bundle in bytes, that of the file with those in overlap. The rest of the 1 MiB that
// the API allows is for the other fields of the object.
const maxUnion = 768 << 10

// state is what is published, and until when. It is immutable.
type state struct {
	// file is the one that was published last; nil if there was none.
	file *Bundle
	// previous are the certificates in overlap: earlier files held them. They are published behind the file.
	previous []*x509.Certificate
	// until is the end of the overlap, in whole seconds, UTC. It has no meaning without previous.
	until time.Time
}

// decode returns the readable part of the state's Secret, which comes empty, and describes the damage.
// An overlap whose end cannot be read is kept as long as one that begins now.
func decode(object *corev1.Secret, now time.Time, overlap time.Duration) (s state, damage string, err error) {
	if len(object.Data) == 0 {
		return state{}, "", nil
	}
	fields, err := stateobject.Read(object.Data)
	if err != nil {
		return state{}, "", fmt.Errorf("use secret %s/%s: %w: run the newer version, or empty the Secret to drop the overlapping "+
			"certificates",
			StateNamespace, StateName, err)
	}
	if s.file, err = ParseBundle(fields.Get(keyCurrent)); err != nil {
		fields.Damaged(keyCurrent, err)
	}
	previous := fields.Get(keyPrevious)
	if len(previous) == 0 {
		return s, fields.Damage(), nil
	}
	if s.previous, err = cert.ParseCertsPEM(previous); err != nil {
		fields.Damaged(keyPrevious, errors.New("holds no certificate"))
	}
	until, err := time.Parse(time.RFC3339, string(fields.Get(keyUntil)))
	if err != nil {
		fields.Damaged(keyUntil, errors.New("is no time"))
		until = now.Add(overlap)
	}
	s.until = ceil(until)
	return s, fields.Damage(), nil
}

// encode returns the data that decode reads.
func (s state) encode() map[string][]byte {
	data := map[string][]byte{}
	if s.file != nil {
		data[keyCurrent] = s.file.pem
	}
	if len(s.previous) > 0 {
		data[keyPrevious] = encodePEM(s.previous...)
		data[keyUntil] = []byte(s.until.Format(time.RFC3339))
	}
	return stateobject.Stamp(data)
}

// decision is the result of plan.
type decision struct {
	published *Bundle
	state     state

	// To be reported: certificates whose overlap begins or ends, and those in overlap that the file
	// holds again.
	began, ended, returned []*x509.Certificate
}

// plan decides which bundle is published: the file and, behind it, the certificates in overlap. known is
// the last state, or zero. Certificates of its file that are not in this one begin an overlap, or join the one that
// is there, which then ends overlap from now. Otherwise the end does not move, but it is not later than overlap from
// now, so that neither an edited state nor a clock that jumped keeps a previous CA for longer. With an
// overlap of 0 only the file is published.
func plan(file *Bundle, known state, now time.Time, overlap time.Duration) *decision {
	d := &decision{state: state{file: file, until: known.until}}
	latest := ceil(now.Add(overlap))
	if known.until.After(latest) {
		d.state.until = latest
	}
	over := !known.until.After(now)
	var current []*x509.Certificate
	if known.file != nil {
		current = known.file.certificates
	}
	for _, certificate := range slices.Concat(current, known.previous) {
		old := contains(known.previous, certificate)
		switch {
		case contains(file.certificates, certificate):
			if !contains(current, certificate) {
				d.returned = append(d.returned, certificate)
			}
		case contains(d.state.previous, certificate), contains(d.ended, certificate):
		case overlap <= 0, old && over:
			d.ended = append(d.ended, certificate)
		default:
			d.state.previous = append(d.state.previous, certificate)
			if !old {
				d.began, d.state.until = append(d.began, certificate), latest
			}
		}
	}
	d.published = file.with(d.state.previous)
	return d
}

// ceil rounds t up to a whole second.
func ceil(t time.Time) time.Time { return t.UTC().Add(time.Second - 1).Truncate(time.Second) }

func contains(certificates []*x509.Certificate, wanted *x509.Certificate) bool {
	return slices.ContainsFunc(certificates, wanted.Equal)
}

func encodePEM(certificates ...*x509.Certificate) []byte {
	var text bytes.Buffer
	for _, certificate := range certificates {
		text.Write(pki.CertPEM(certificate))
	}
	return text.Bytes()
}

// fingerprint returns the beginning of the output of `openssl x509 -fingerprint -sha256`.
func fingerprint(certificate *x509.Certificate) string {
	sum := sha256.Sum256(certificate.Raw)
	return hex.EncodeToString(sum[:8])
}
