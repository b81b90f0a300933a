// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/klog/v2"
)

// selfSigned makes a certificate and its key, both PEM, as KCM does. It encrypts and
// proves nothing. It is valid for a year, for localhost and, if that is a certain one, for
// the bind address.
func selfSigned(bind net.IP) (cert, key []byte, err error) {
	addresses := []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	if bind != nil && !bind.IsUnspecified() && !bind.IsLoopback() {
		addresses = append(addresses, bind)
	}
	return certutil.GenerateSelfSignedCertKey("localhost", addresses, nil)
}

// keptCertificate is the self-signed certificate in dir. It is made there if it is
// not there, and used as it is, expired or not, if it is: as in KCM. A key alone is what
// a process has left that was killed between the two files, and is no reason not to
// start.
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

// keepCertificate writes both files whole before either gets its name, so that what may
// fail for long, as on a full disk, leaves no half pair.
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
	// The certificate comes last, because it says that the pair is there.
	return os.Rename(certFile+".new", certFile)
}

// backup renames a key that has no certificate: its certificate may be elsewhere.
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
	logger.Info("Renamed a private key in --cert-dir that had no certificate, to make a new pair", "file", old)
	return nil
}
