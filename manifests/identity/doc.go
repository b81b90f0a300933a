// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package identity maintains who sa-controller-manager is on a kubeadm control plane: its client certificate, with a
// kubeconfig, and its permissions.
//
// Certificate and kubeconfig have a directory of their own. client.pem holds the certificate with its
// key and is replaced by a rename, so that a process that watches it always reads a matching pair. The
// kubeconfig names it. Valid files stay as they are, byte for byte, so frequent checks cost nothing. A
// kubeconfig of another user belongs to the operator and is never changed.
//
// If the key of the cluster's CA is kept elsewhere, the kubeconfig has to be the operator's.
//
// The permissions are applied as a member of system:masters with a certificate that is valid for ten
// minutes and stays in memory. It must never get into a file, a log or an error, and neither must any
// private key except the one in client.pem.
package identity
