// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

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

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
)

// servingCertLifetime is that of the certificate KCM makes for itself. Nothing
// can be made to trust one that is kept in memory, so its end stops no client that
// works today.
const servingCertLifetime = 365 * 24 * time.Hour

// selfMadeCertificate makes a certificate and its key, both PEM. It is signed by
// itself, so it encrypts and proves nothing. It is valid for localhost and, if
// that is a certain one, for the bind address.
func selfMadeCertificate(now time.Time, bind net.IP) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generate key: %w", err)
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: options.ProgramName},
		// A client's clock may be behind ours.
		NotBefore:   now.Add(-time.Hour),
		NotAfter:    now.Add(servingCertLifetime),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	if bind != nil && !bind.IsUnspecified() && !bind.IsLoopback() {
		template.IPAddresses = append(template.IPAddresses, bind)
	}
	// A nil serial number asks for a random one.
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return nil, nil, fmt.Errorf("sign certificate: %w", err)
	}
	if key, err = keyutil.MarshalPrivateKeyToPEM(private); err != nil {
		return nil, nil, fmt.Errorf("encode key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: der}), key, nil
}

// keptCertificate is the self-made certificate in dir. It is made there if it is
// not there, and used as it is, expired or not, if it is: as in KCM. A key alone is what
// a process has left that was killed between the two files, and is no reason not to
// start.
func keptCertificate(logger klog.Logger, now time.Time, bind net.IP, dir string) (dynamiccertificates.CertKeyContentProvider, error) {
	certFile, keyFile := filepath.Join(dir, options.ProgramName+".crt"), filepath.Join(dir, options.ProgramName+".key")
	found, err := certutil.CanReadCertAndKey(certFile, keyFile)
	if _, missing := os.Stat(certFile); err != nil && !errors.Is(missing, fs.ErrNotExist) {
		return nil, fmt.Errorf("--cert-dir %q: %w", dir, err)
	}
	if !found {
		if err := keepCertificate(logger, now, bind, certFile, keyFile); err != nil {
			return nil, fmt.Errorf("--cert-dir %q: %w", dir, err)
		}
	}
	content, err := dynamiccertificates.NewDynamicServingContentFromFiles("serving-cert", certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("--cert-dir %q: %w", dir, err)
	}
	return content, nil
}

// keepCertificate writes both files whole before either gets its name, so that what may
// fail for long, as on a full disk, leaves no half pair.
func keepCertificate(logger klog.Logger, now time.Time, bind net.IP, certFile, keyFile string) error {
	cert, key, err := selfMadeCertificate(now, bind)
	if err != nil {
		return err
	}
	if err := keyutil.WriteKey(keyFile+".new", key); err != nil {
		return err
	}
	if err := certutil.WriteCert(certFile+".new", cert); err != nil {
		return err
	}
	if err := setAside(logger, keyFile); err != nil {
		return err
	}
	if err := os.Rename(keyFile+".new", keyFile); err != nil {
		return err
	}
	// The certificate comes last, because it says that the pair is there.
	return os.Rename(certFile+".new", certFile)
}

// setAside renames a key that has no certificate: its certificate may be elsewhere.
func setAside(logger klog.Logger, keyFile string) error {
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
	logger.Info("Renamed a private key in --cert-dir that had no certificate, to make a new pair", "file", old)
	return nil
}
