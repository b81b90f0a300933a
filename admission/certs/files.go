// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// FilesConfig says which files to follow. CertFile and KeyFile are required.
type FilesConfig struct {
	// CertFile holds the serving certificate and what is between it and its CA, KeyFile
	// its private key; both PEM. The caBundle is the CA certificates in CertFile, or the
	// serving certificate if that has signed itself.
	CertFile, KeyFile string
	// NeedsCA refuses a CertFile without a CA: somebody is to register the caBundle.
	NeedsCA bool
	// Hosts are the DNS names and IP addresses that callers will use. The certificate
	// must be valid for all of them.
	Hosts   []string
	Metrics *Metrics
	Clock   clock.PassiveClock // nil means the real one
}

// Files follows certificate files. A changed pair that callers could not use is refused
// and the one before it stays, so that replacing the two files one after the other is
// harmless. Reading files and comparing the key is the library's part
// (k8s.io/apiserver/pkg/server/dynamiccertificates); it logs what it refuses.
type Files struct {
	*Source

	config  FilesConfig
	pair    *dynamiccertificates.DynamicCertKeyPairContent
	changed notifier
}

// NewFiles reads the files once. Whatever is wrong with them is an error, except that
// the certificate has expired: then Ready says so.
func NewFiles(config FilesConfig) (*Files, error) {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	pair, err := dynamiccertificates.NewDynamicServingContentFromFiles("webhook-serving", config.CertFile, config.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("read the serving certificate %q and its key %q: %w", config.CertFile, config.KeyFile, err)
	}
	f := &Files{Source: newSource(config.Clock, config.Metrics), config: config, pair: pair, changed: make(notifier, 1)}
	pair.AddListener(f.changed)
	return f, f.load()
}

// Run follows the files until ctx ends.
func (f *Files) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { f.pair.Run(ctx, 1) })
	logger := klog.FromContext(ctx).WithValues("certFile", f.config.CertFile)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.changed:
		}
		if err := f.load(); err != nil {
			logger.Error(err, "Refused the changed serving certificate, the former one stays in use")
			continue
		}
		logger.Info("Loaded the changed serving certificate", "notAfter", f.NotAfter()[nameServing])
	}
}

// load takes what the library has read, if callers can use it.
func (f *Files) load() error {
	certPEM, keyPEM := f.pair.CurrentCertKeyContent()
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return fmt.Errorf("use %q: %w", f.config.CertFile, err)
	}
	if err := f.check(pair.Leaf); err != nil {
		return fmt.Errorf("use %q: %w", f.config.CertFile, err)
	}
	bundle, err := f.bundle(certPEM)
	if err != nil {
		return fmt.Errorf("find the CA of %q: %w", f.config.CertFile, err)
	}
	f.set(&snapshot{serving: &pair, bundle: bundle, notAfter: map[string]time.Time{nameServing: pair.Leaf.NotAfter}})
	return nil
}

// check finds what would make the apiserver refuse the certificate, and what the
// library does not look at.
func (f *Files) check(leaf *x509.Certificate) error {
	if len(leaf.DNSNames)+len(leaf.IPAddresses) == 0 {
		return errors.New("the certificate has no subject alternative name, so no caller accepts it")
	}
	for _, host := range f.config.Hosts {
		if err := leaf.VerifyHostname(host); err != nil {
			return err
		}
	}
	if len(leaf.ExtKeyUsage)+len(leaf.UnknownExtKeyUsage) > 0 &&
		!slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageServerAuth) && !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageAny) {
		return errors.New("the certificate may not be used by servers: its extended key usage lacks serverAuth")
	}
	if now := f.config.Clock.Now(); now.After(leaf.NotAfter) || now.Before(leaf.NotBefore) {
		if f.Ready() == nil {
			return fmt.Errorf("the certificate is valid from %s to %s only", leaf.NotBefore.UTC().Format(time.RFC3339), leaf.NotAfter.UTC().Format(time.RFC3339))
		}
	}
	return nil
}

// bundle is the caBundle for a certificate file with the given content.
func (f *Files) bundle(chain []byte) ([]byte, error) {
	certificates, err := cert.ParseCertsPEM(chain)
	if err != nil {
		return nil, err
	}
	var bundle bytes.Buffer
	for i, certificate := range certificates {
		selfSigned := bytes.Equal(certificate.RawIssuer, certificate.RawSubject)
		if i == 0 && selfSigned || i > 0 && certificate.IsCA {
			bundle.Write(certPEM(certificate))
		}
	}
	if bundle.Len() == 0 && f.config.NeedsCA {
		return nil, errors.New("there is none to register with kube-apiserver: the file must end with the CA's certificate")
	}
	return bundle.Bytes(), nil
}

// notifier is a dynamiccertificates.Listener that remembers one change until it is
// looked at.
type notifier chan struct{}

// Enqueue is called by the library when it has read another content.
func (n notifier) Enqueue() {
	select {
	case n <- struct{}{}:
	default: // a look is due anyway
	}
}
