// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package informers

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Writer is who wrote a field, and when, as far as managedFields say.
type Writer struct {
	Manager string
	At      time.Time // in whole seconds, by kube-apiserver's clock
}

// DataWriters tells for each key of an object's data who wrote it last. Who may write the
// object may make managedFields say anything.
func DataWriters(entries []metav1.ManagedFieldsEntry) map[string]Writer {
	var writers map[string]Writer
	for _, entry := range entries {
		for _, key := range ownedData(entry) {
			writer := Writer{Manager: entry.Manager}
			if entry.Time != nil {
				writer.At = entry.Time.Time
			}
			if writers == nil {
				writers = map[string]Writer{}
			}
			if known, ok := writers[key]; !ok || !writer.At.Before(known.At) {
				writers[key] = writer
			}
		}
	}
	return writers
}

// FilledByTokenController tells whether nobody but token controllers has written the
// annotation that says the UID of the Secret's account, and one of them the token, if there
// is one. It is false if managedFields do not say.
func FilledByTokenController(secret *corev1.Secret) bool {
	bound := false
	for _, entry := range secret.ManagedFields {
		if !ownsUID(entry) {
			continue
		}
		if !slices.Contains(tokenControllers, entry.Manager) {
			return false
		}
		bound = true
	}
	token := DataWriters(secret.ManagedFields)[corev1.ServiceAccountTokenKey].Manager
	return bound && (len(secret.Data[corev1.ServiceAccountTokenKey]) == 0 || slices.Contains(tokenControllers, token))
}

func ownsUID(entry metav1.ManagedFieldsEntry) bool {
	var owned struct {
		Metadata struct {
			Annotations map[string]json.RawMessage `json:"f:annotations"`
		} `json:"f:metadata"`
	}
	if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &owned) != nil {
		return false
	}
	_, owns := owned.Metadata.Annotations["f:"+corev1.ServiceAccountUIDKey]
	return owns
}

// ownedData are the keys of data that an entry owns. In fieldsV1 they are the members
// f:<key> of f:data.
func ownedData(entry metav1.ManagedFieldsEntry) []string {
	const data = "f:data"
	if entry.FieldsV1 == nil || !bytes.Contains(entry.FieldsV1.GetRawBytes(), []byte(data)) {
		return nil
	}
	var owned map[string]json.RawMessage
	var fields map[string]json.RawMessage
	if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &owned) != nil || json.Unmarshal(owned[data], &fields) != nil {
		return nil
	}
	keys := make([]string, 0, len(fields))
	for field := range fields {
		if key, ok := strings.CutPrefix(field, "f:"); ok {
			keys = append(keys, key)
		}
	}
	return keys
}
