// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package identity makes the client certificate and the kubeconfig of
// sa-controller-manager from the CA of a kubeadm control plane, and grants its user what
// it may do.
//
// A file that is still good is left alone byte for byte, so that running it at every
// start of a node costs nothing and disturbs nobody. One of another user is never
// overwritten without being told to.
//
// The permissions are applied as a user of system:masters with a certificate that is
// good for ten minutes. It exists in memory only: what must never happen is that it, or
// any private key but that of the kubeconfig, gets into a file, a log or an error.
package identity
