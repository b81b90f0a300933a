// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/controllers/view"
)

// tokenSecret is what is kept of a token Secret. Neither the token nor anything that it
// could be made from is.
type tokenSecret struct {
	*view.TokenSecret

	// bundle is the root CA in it, as a set of certificates.
	bundle bundle
	// filledBy wrote the token, at filledAt, as far as managedFields say.
	filledBy string
	filledAt time.Time
}

func observe(secret *corev1.Secret) tokenSecret {
	kept := tokenSecret{TokenSecret: view.ObserveTokenSecret(secret), bundle: parseBundle(string(secret.Data[corev1.ServiceAccountRootCAKey]))}
	for _, entry := range secret.ManagedFields {
		if entry.Time != nil && ownsToken(entry) && entry.Time.After(kept.filledAt) {
			kept.filledBy, kept.filledAt = entry.Manager, entry.Time.Time
		}
	}
	return kept
}

// ownsToken tells whether the entry's manager wrote data.token. Names of fields are all
// that managedFields have.
func ownsToken(entry metav1.ManagedFieldsEntry) bool {
	var owned struct {
		Data map[string]json.RawMessage `json:"f:data"`
	}
	if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &owned) != nil {
		return false
	}
	_, owns := owned.Data["f:"+corev1.ServiceAccountTokenKey]
	return owns
}

func (s tokenSecret) name() string { return s.Namespace + "/" + s.Name }

func (s tokenSecret) account() cache.ObjectName {
	return cache.NewObjectName(s.Namespace, s.AccountName)
}
