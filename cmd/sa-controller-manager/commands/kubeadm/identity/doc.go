// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package identity keeps the client certificate and the kubeconfig of sa-controller-manager on
// a kubeadm control plane, and grants its user what it may do.
//
// Both are in a directory of their own. client.pem has the certificate and its key, and is
// replaced by a rename, so that a process that follows it finds a pair; the kubeconfig names it.
// What is still good is left alone byte for byte, so that looking often costs nothing. A
// kubeconfig of another user is the operator's and never touched.
//
// Where the key of the cluster's CA is kept elsewhere, a request to sign is written beside them,
// and the signed certificate is taken from there.
//
// The permissions are applied as a user of system:masters with a certificate that is
// good for ten minutes. It exists in memory only: what must never happen is that it, or
// any private key but that of client.pem, gets into a file, a log or an error.
package identity
