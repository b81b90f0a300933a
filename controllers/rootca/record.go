// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
)

// Where the state is kept.
const (
	StateNamespace = metav1.NamespaceSystem
	StateName      = "sa-controller-manager-root-ca"
)

// The keys of the state. Each former has two, which share what is between prefix and
// suffix: the certificate in PEM, and when it ends (RFC 3339).
const (
	keySchema     = "schema-version"
	keyCurrent    = "current.crt"
	formerPrefix  = "former-"
	suffixCert    = ".crt"
	suffixUntil   = ".until"
	schemaVersion = "1"
)

// reading is what could be read of the state's ConfigMap.
type reading struct {
	state

	// damage says what could not be read; it is mended by the next write.
	damage []string
	// foreign is a schema version that this program does not know; then nothing is
	// read and nothing may be written.
	foreign string
}

// read takes everything that is whole from the state's ConfigMap. A former whose end
// cannot be read is kept as long as one that becomes a former at now.
func read(from *corev1.ConfigMap, now time.Time, overlap time.Duration) reading {
	version := from.Data[keySchema]
	if version != schemaVersion && version != "" {
		return reading{foreign: version}
	}
	var r reading
	damaged := func(key, how string) { r.damage = append(r.damage, key+" "+how) }
	if version == "" {
		damaged(keySchema, "is missing")
	}
	current, err := ParseBundle([]byte(from.Data[keyCurrent]))
	if err != nil {
		damaged(keyCurrent, err.Error())
	} else {
		r.current = current.certificates
	}
	for _, key := range slices.Sorted(maps.Keys(from.Data)) {
		name, ok := strings.CutSuffix(key, suffixCert)
		if !ok || !strings.HasPrefix(name, formerPrefix) {
			continue
		}
		certificates, err := cert.ParseCertsPEM([]byte(from.Data[key]))
		if err != nil {
			damaged(key, "holds no certificate")
			continue
		}
		until, err := time.Parse(time.RFC3339, from.Data[name+suffixUntil])
		if err != nil {
			damaged(name+suffixUntil, "is no time")
			until = now.Add(overlap)
		}
		for _, certificate := range certificates {
			r.formers = append(r.formers, former{certificate, ceil(until)})
		}
	}
	return r
}

// data is the content of the ConfigMap that read reads.
func (s state) data() map[string]string {
	data := map[string]string{
		keySchema:  schemaVersion,
		keyCurrent: string(encodePEM(s.current...)),
	}
	for _, f := range s.formers {
		name := formerPrefix + fingerprint(f.certificate)
		data[name+suffixCert] = string(encodePEM(f.certificate))
		data[name+suffixUntil] = f.until.Format(time.RFC3339)
	}
	return data
}

// writeInto is a copy of the ConfigMap that holds the state and nothing else, and nil
// if the ConfigMap does so already. Without one it is a new one.
func (s state) writeInto(into *corev1.ConfigMap) *corev1.ConfigMap {
	data := s.data()
	if into == nil {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: StateNamespace, Name: StateName}, Data: data}
	}
	if maps.Equal(into.Data, data) && len(into.BinaryData) == 0 {
		return nil
	}
	into = into.DeepCopy()
	into.Data, into.BinaryData = data, nil
	return into
}

// foreignError says that the state was written by a newer version of this program.
type foreignError struct{ version string }

func (e foreignError) Error() string {
	return fmt.Sprintf("use configmap %s/%s: its %s is %.20q, this program knows %q only: run the newer version, or delete the ConfigMap to give up what is in overlap",
		StateNamespace, StateName, keySchema, e.version, schemaVersion)
}
