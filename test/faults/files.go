// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"sa-controller-manager/test/devcluster"
)

// Files of a replica. They are links through contentLink, as in a mounted Secret, so that
// one rename changes them all at once.
const (
	keyFile     = "service-account.key"
	caFile      = "root-ca.crt"
	certFile    = "serving.crt"
	certKeyFile = "serving.key"

	contentLink = "..data"
)

// writeFiles gives the replica copies of the cluster's key and CA, and a certificate of
// its own.
func (r *Replica) writeFiles(cluster *devcluster.Cluster) error {
	certificate, key, err := selfSigned()
	if err != nil {
		return err
	}
	content := map[string][]byte{certFile: certificate, certKeyFile: key}
	for name, from := range map[string]string{keyFile: cluster.SigningKeyFile(), caFile: cluster.CAFile()} {
		if content[name], err = os.ReadFile(from); err != nil {
			return fmt.Errorf("copy a file: %w", err)
		}
	}
	if err := r.writeContent("..good", content); err != nil {
		return err
	}
	for name := range content {
		if err := os.Symlink(filepath.Join(contentLink, name), r.path(name)); err != nil {
			return fmt.Errorf("link a file: %w", err)
		}
	}
	return r.point("..good")
}

func (r *Replica) writeContent(dir string, content map[string][]byte) error {
	if err := os.MkdirAll(r.path(dir), 0o700); err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	for name, bytes := range content {
		if err := os.WriteFile(filepath.Join(r.path(dir), name), bytes, 0o600); err != nil {
			return fmt.Errorf("write a file: %w", err)
		}
	}
	return nil
}

// point has all files be those of another directory, in one step.
func (r *Replica) point(dir string) error {
	link := r.path(contentLink)
	if err := os.Symlink(dir, link+".new"); err != nil {
		return fmt.Errorf("link a directory: %w", err)
	}
	if err := os.Rename(link+".new", link); err != nil {
		return fmt.Errorf("link a directory: %w", err)
	}
	return nil
}

// replace puts another file in the place of a link, and restore puts the link back.
func (r *Replica) replace(name string, content []byte, mode os.FileMode) error {
	path := r.path(name)
	if err := os.WriteFile(path+".new", content, mode); err != nil {
		return fmt.Errorf("write a file: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("replace a file: %w", err)
	}
	return nil
}

func (r *Replica) restore(name string) error {
	path := r.path(name)
	if err := os.Symlink(filepath.Join(contentLink, name), path+".new"); err != nil {
		return fmt.Errorf("link a file: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("link a file: %w", err)
	}
	return nil
}

// selfSigned makes a certificate that is good for a day.
func selfSigned() (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a certificate: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, DNSNames: []string{"localhost"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return nil, nil, fmt.Errorf("make a certificate: %w", err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, fmt.Errorf("make a certificate: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}), nil
}
