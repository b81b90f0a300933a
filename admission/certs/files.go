// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"sa-controller-manager/internal/reconcile"
)

// FilesConfig configures Files. CertFile and KeyFile are required.
type FilesConfig struct {
	// CertFile holds the serving certificate and its chain, KeyFile its private key; both PEM. The
	// caBundle is the CA certificates in CertFile, or the serving certificate if it is self-signed.
	CertFile, KeyFile string
	// NeedsCA refuses a CertFile without a CA, because the caBundle will be registered.
	NeedsCA bool
	// Hosts are the DNS names and IP addresses that callers use. The certificate must be valid for
	// all of them.
	Hosts   []string
	Metrics *Metrics
	Loops   *reconcile.Metrics
	Clock   clock.WithTicker // nil means the real one
}

// filesOverlap is how long the caBundle keeps a CA, at least, that the files no longer need: the files of all
// replicas behind a Service have to be replaced within it, which a kubelet does in two minutes at most.
const filesOverlap = 10 * time.Minute

// Files follows certificate files. A changed pair that callers could not use is refused and the
// previous one stays, so the two files may be replaced one after the other. The library reads the
// files and compares the key (k8s.io/apiserver/pkg/server/dynamiccertificates); it logs what it
// refuses.
//
// With NeedsCA a changed pair is served once callers have its CA, because all replicas share the
// caBundle and their files do not change at the same time. The CAs of the previous files stay in it
// for the overlap.
type Files struct {
	*Source

	config FilesConfig
	pair   *dynamiccertificates.DynamicCertKeyPairContent
	loop   *reconcile.Runner[string]
	unread atomic.Bool // the library has read new content

	// Only load and step use what follows.
	newest, serving *servingPair
	refused         error // why newer content is not used
}

// servingPair is the content of the files at one time. It is compared by address.
type servingPair struct {
	*tls.Certificate
	cas []*x509.Certificate // must be in the caBundle
}

// NewFiles reads the files once. Any problem with them is an error, except an expired certificate:
// then Ready returns the error.
func NewFiles(config FilesConfig) (*Files, error) {
	config.Clock = cmp.Or[clock.WithTicker](config.Clock, clock.RealClock{})
	pair, err := dynamiccertificates.NewDynamicServingContentFromFiles("webhook-serving", config.CertFile, config.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("read the serving certificate %q and its key %q: %w", config.CertFile, config.KeyFile, err)
	}
	f := &Files{Source: newSource(config.Clock, config.Metrics), config: config, pair: pair}
	f.loop = reconcile.New(reconcile.Config[string]{
		Name: "webhook_certificate_files", Workers: 1, Sync: f.sync, Metrics: config.Loops, Clock: config.Clock,
	})
	f.observed = func() { f.loop.AddIfRunning(config.CertFile) }
	pair.AddListener(f)
	if err := f.load(); err != nil {
		return nil, err
	}
	f.step()
	return f, nil
}

// Enqueue implements dynamiccertificates.Listener: the library has read new content.
func (f *Files) Enqueue() {
	f.unread.Store(true)
	f.loop.AddIfRunning(f.config.CertFile)
}

// Run follows the files until ctx ends.
func (f *Files) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { f.pair.Run(ctx, 1) })
	f.loop.Add(f.config.CertFile)
	f.loop.Run(ctx)
	return nil
}

func (f *Files) sync(ctx context.Context, key string) error {
	logger := klog.FromContext(ctx)
	if f.unread.Swap(false) {
		if f.refused = f.load(); f.refused != nil {
			logger.Error(f.refused, "Refused the changed serving certificate, keeping the previous one")
		} else {
			logger.Info("Loaded the changed serving certificate", "notAfter", f.newest.Leaf.NotAfter)
		}
	}
	before := f.serving
	after := f.step()
	if f.serving != before {
		logger.Info("Serving the changed serving certificate", "notAfter", f.serving.Leaf.NotAfter)
	}
	f.loop.AddAfter(key, after)
	return nil
}

// load uses what the library has read, if callers can use it.
func (f *Files) load() error {
	certPEM, keyPEM := f.pair.CurrentCertKeyContent()
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return fmt.Errorf("use %q: %w", f.config.CertFile, err)
	}
	if err := f.check(pair.Leaf); err != nil {
		return fmt.Errorf("use %q: %w", f.config.CertFile, err)
	}
	cas, err := f.authorities(certPEM)
	if err != nil {
		return fmt.Errorf("find the CA of %q: %w", f.config.CertFile, err)
	}
	f.newest = &servingPair{Certificate: &pair, cas: cas}
	return nil
}

// step decides what is served and what the caBundle contains, and returns when to check again if
// nothing happens.
func (f *Files) step() time.Duration {
	now, next := f.config.Clock.Now(), filesOverlap
	f.serving = cmp.Or(f.serving, f.newest)
	inUse := slices.Concat(f.newest.cas, f.serving.cas)
	switch {
	case f.serving == f.newest:
	case !f.config.NeedsCA || now.After(f.serving.Leaf.NotAfter) ||
		f.registered.verify(f.newest.Leaf, f.newest.Certificate.Certificate[1:], now):
		f.serving = f.newest
	default:
		next = checkDuringChange
	}
	f.set(&snapshot{serving: f.serving.Certificate, bundle: f.registered.bundle(inUse, now, filesOverlap), problem: f.refused})
	return next
}

// check returns an error if the apiserver would refuse the certificate for a reason that the
// library does not check.
func (f *Files) check(leaf *x509.Certificate) error {
	if len(leaf.DNSNames)+len(leaf.IPAddresses) == 0 {
		return errors.New("the certificate has no subject alternative name, so no caller accepts it")
	}
	for _, host := range f.config.Hosts {
		if err := leaf.VerifyHostname(host); err != nil {
			return err
		}
	}
	itself := x509.NewCertPool() // who signed it is checked by callers
	itself.AddCert(leaf)
	_, err := leaf.Verify(x509.VerifyOptions{Roots: itself, CurrentTime: f.config.Clock.Now()})
	if bad, ok := errors.AsType[x509.CertificateInvalidError](err); ok && bad.Reason == x509.Expired && f.Ready() != nil {
		return nil //nolint:nilerr // the previous one is no better
	}
	return err
}

// authorities returns the certificates that the caBundle needs for the given content of a
// certificate file.
func (f *Files) authorities(chain []byte) ([]*x509.Certificate, error) {
	certificates, err := cert.ParseCertsPEM(chain)
	if err != nil {
		return nil, err
	}
	var cas []*x509.Certificate
	for i, certificate := range certificates {
		selfSigned := bytes.Equal(certificate.RawIssuer, certificate.RawSubject)
		if i == 0 && selfSigned || i > 0 && certificate.IsCA {
			cas = append(cas, certificate)
		}
	}
	if len(cas) == 0 && f.config.NeedsCA {
		return nil, errors.New("it contains no CA to register with kube-apiserver: the file must end with the CA's certificate")
	}
	return cas, nil
}
