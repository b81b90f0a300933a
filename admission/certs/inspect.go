// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/x509"

	corev1 "k8s.io/api/core/v1"
)

// Active is the CA certificate that leaves are signed with now, for those who only look
// at the Secret. It reads no key.
func Active(secret *corev1.Secret) (*x509.Certificate, error) {
	return readCA(secret.Data[keyActiveCert])
}
