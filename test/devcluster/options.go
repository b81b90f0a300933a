// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"io"
	"time"
)

// startTimeout bounds how long a part of the control plane may take to become
// ready. A loaded machine with two cores needs about ten seconds.
const startTimeout = 2 * time.Minute

// KeyType says which kind of key signs service account tokens.
type KeyType string

const (
	// RSA is a 2048 bit RSA key in a PKCS#1 PEM block: RS256 signatures.
	RSA KeyType = "RSA"
	// ECDSA is a P-256 key in a SEC1 PEM block: ES256 signatures.
	ECDSA KeyType = "ECDSA"
)

// Options describe a control plane. The zero value is a good one.
type Options struct {
	// Issuer is that of the tokens; one that nobody can reach if empty.
	Issuer string
	// SigningKey is the type of the key made for the cluster; RSA if empty.
	SigningKey KeyType
	// ExtraKeyFiles are further files with keys, public or private, whose tokens
	// kube-apiserver accepts.
	ExtraKeyFiles []string
	// ExternalSigner has kube-apiserver take signatures and keys from a process that serves
	// on Cluster.SignerSocket, and from no file. Without one it does not start, so this
	// goes with BeforeAPIServer.
	ExternalSigner bool
	// BeforeAPIServer is called when all but kube-apiserver is there, before that starts
	// for the first time; so for each that joins. What it starts may outlive it.
	BeforeAPIServer func(*Cluster) error
	// APIServerFlags are kube-apiserver flags by name, without dashes. An entry
	// replaces every value that the cluster would give that flag; an entry with
	// no value removes the flag. Authorization is RBAC unless authorization-mode
	// says otherwise here.
	APIServerFlags map[string][]string
	// Log, unless nil, receives the output of etcd and kube-apiserver as it comes.
	Log io.Writer
}
