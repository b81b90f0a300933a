// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/klog/v2"
)

// selfSigned returns a certificate and its key, both PEM. It gives encryption without
// authentication. It is valid for a year, for localhost and for a specific bind address. Unlike KCM's
// it is not RSA, whose keys take a quarter of a second to find.
func selfSigned(bind net.IP) (cert, key []byte, err error) {
	addresses := []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	if bind != nil && !bind.IsUnspecified() && !bind.IsLoopback() {
		addresses = append(addresses, bind)
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: fmt.Sprintf("localhost@%d", now.Unix())},
		NotBefore:             now.Add(-time.Hour), // for clients whose clocks are late
		NotAfter:              now.AddDate(1, 0, 0),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:              []string{"localhost"},
		IPAddresses:           addresses,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return nil, nil, err
	}
	key, err = keyutil.MarshalPrivateKeyToPEM(private)
	return pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: der}), key, err
}

// keptCertificate returns the self-signed certificate in dir. If it is missing it is created;
// otherwise it is used even if it has expired, as in KCM. A key without a certificate is left by a
// process that was killed between the two files, and does not prevent a start.
func keptCertificate(logger klog.Logger, name string, bind net.IP, dir string) (dynamiccertificates.CertKeyContentProvider, error) {
	certFile, keyFile := filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	found, err := certutil.CanReadCertAndKey(certFile, keyFile)
	if _, missing := os.Stat(certFile); err != nil && !errors.Is(missing, fs.ErrNotExist) {
		return nil, fmt.Errorf("--cert-dir %q: %w", dir, err)
	}
	if !found {
		if err := keepCertificate(logger, bind, certFile, keyFile); err != nil {
			return nil, fmt.Errorf("--cert-dir %q: %w", dir, err)
		}
	}
	content, err := dynamiccertificates.NewDynamicServingContentFromFiles("serving-cert", certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("--cert-dir %q: %w", dir, err)
	}
	return content, nil
}

// keepCertificate writes both files completely before it renames them, so that a lasting failure,
// such as a full disk, leaves no half pair.
func keepCertificate(logger klog.Logger, bind net.IP, certFile, keyFile string) error {
	cert, key, err := selfSigned(bind)
	if err != nil {
		return err
	}
	if err := keyutil.WriteKey(keyFile+".new", key); err != nil {
		return err
	}
	if err := certutil.WriteCert(certFile+".new", cert); err != nil {
		return err
	}
	if err := backup(logger, keyFile); err != nil {
		return err
	}
	if err := os.Rename(keyFile+".new", keyFile); err != nil {
		return err
	}
	// The certificate comes last: its existence means that the pair is complete.
	return os.Rename(certFile+".new", certFile)
}

// backup renames a key without a certificate: its certificate may be elsewhere.
func backup(logger klog.Logger, keyFile string) error {
	if _, err := os.Lstat(keyFile); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	old := keyFile + ".old"
	if _, err := os.Lstat(old); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s has no certificate, and %s is there too; remove what nothing needs", filepath.Base(keyFile), filepath.Base(old))
	}
	if err := os.Rename(keyFile, old); err != nil {
		return err
	}
	logger.Info("Renamed a private key without certificate in --cert-dir to create a new pair", "file", old)
	return nil
}
