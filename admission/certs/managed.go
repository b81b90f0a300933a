// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1informers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"sa-controller-manager/internal/events"
	"sa-controller-manager/internal/reconcile"
)

// The Secret of the serving CA.
const (
	SecretNamespace = metav1.NamespaceSystem
	SecretName      = "sa-controller-manager-webhook-ca"

	secretKey = SecretNamespace + "/" + SecretName
)

const (
	defaultCALifetime   = 365 * 24 * time.Hour
	defaultLeafLifetime = 30 * 24 * time.Hour

	// propagation is how long every apiserver may take to receive a registered caBundle. Their
	// watches take less than a second.
	propagation = 30 * time.Second

	// These checks send no requests, so frequent ones are cheap. The longer interval limits the
	// effect of a clock that jumps.
	checkDuringChange = 5 * time.Second
	checkAtRest       = time.Minute

	maxBackoff = 30 * time.Second

	// If another client reverts our writes, a few repairs are immediate and then there is one per
	// interval. The state in memory does not depend on them.
	writeBurst    = 10
	writeInterval = time.Second
)

// ManagedConfig configures a Managed. Client and Hosts are required.
type ManagedConfig struct {
	Client kubernetes.Interface
	// File keeps the serving CA of one host instead of the Secret, with mode 0600.
	File string
	// Hosts are the DNS names and IP addresses that callers use. 127.0.0.1 is added.
	Hosts []string
	// Recorder records an Event for a Secret that was deleted or damaged. It may be nil.
	Recorder *events.Recorder
	Metrics  *Metrics
	Loops    *reconcile.Metrics
	Clock    clock.WithTicker // nil means the real one
	// CALifetime and LeafLifetime are a year and thirty days if zero.
	CALifetime, LeafLifetime time.Duration
}

// Managed reconciles the Secret of the serving CA and issues the leaf of this process. Every
// replica runs one.
type Managed struct {
	*Source

	config   ManagedConfig
	informer cache.SharedIndexInformer
	loop     *reconcile.Runner[string]
	writes   *rate.Limiter

	// Only the goroutine of Run uses what follows.
	held   *state
	leaf   *tls.Certificate
	issuer *x509.Certificate // of leaf
}

// NewManaged returns a Managed whose Source is empty until Run has seen the Secret.
func NewManaged(config ManagedConfig) *Managed {
	config.Clock = cmp.Or[clock.WithTicker](config.Clock, clock.RealClock{})
	config.CALifetime = cmp.Or(config.CALifetime, defaultCALifetime)
	config.LeafLifetime = cmp.Or(config.LeafLifetime, defaultLeafLifetime)
	config.Hosts = append([]string{net.IPv4(127, 0, 0, 1).String()}, config.Hosts...)
	m := &Managed{
		Source: newSource(config.Clock, config.Metrics),
		config: config,
		writes: rate.NewLimiter(rate.Every(writeInterval), writeBurst),
	}
	if config.File == "" {
		m.informer = corev1informers.NewFilteredSecretInformer(
			config.Client, SecretNamespace, 0, cache.Indexers{}, reconcile.OnlyNamed(SecretName))
	}
	m.loop = reconcile.New(reconcile.Config[string]{
		Name: "webhook_serving_ca", Workers: 1, Sync: m.sync,
		Metrics: config.Loops, MaxBackoff: maxBackoff, Clock: config.Clock,
	})
	return m
}

// ServiceHosts returns the names that callers may use for a Service.
func ServiceHosts(namespace, name string) []string {
	return []string{name + "." + namespace + ".svc", name + "." + namespace + ".svc.cluster.local", name + "." + namespace}
}

// Run runs until ctx ends. It must be called once.
func (m *Managed) Run(ctx context.Context) error {
	m.fail(fmt.Errorf("the serving CA has not been read from %s yet", m.where()))
	if m.config.File != "" {
		m.loop.Add(SecretName)
		m.loop.Run(ctx)
		return nil
	}
	return m.loop.RunWatching(ctx, SecretName, reconcile.Watch{Informer: m.informer})
}

// sync uses the content of the Secret and writes what is due. Its writes come back through the
// watch. It always requeues the key.
func (m *Managed) sync(ctx context.Context, key string) error {
	secret, err := m.stored()
	if err != nil {
		return err
	}
	m.adopt(secret)
	decided, err := plan(observation{
		secret: secret,
		held:   m.held,
		now:    m.config.Clock.Now(),
		known:  func(ca *x509.Certificate) bool { return m.registered.verify(ca, nil, m.config.Clock.Now()) },
		fresh:  func() (*authority, error) { return newAuthority(m.config.Clock.Now(), m.config.CALifetime) },
	})
	if err == nil {
		err = m.act(ctx, secret, decided)
	} else {
		err = fmt.Errorf("use %s: %w", m.where(), err)
	}
	if err = errors.Join(m.serve(ctx), err); err != nil {
		if m.leaf == nil {
			m.fail(err)
		}
		return err
	}
	m.loop.AddAfter(key, m.requeueAfter(decided.reason == ""))
	return nil
}

// where names the Secret or the file.
func (m *Managed) where() string {
	if m.config.File != "" {
		return m.config.File
	}
	return "secret " + secretKey
}

// stored returns the Secret from the watch or the file, nil if there is none.
func (m *Managed) stored() (*corev1.Secret, error) {
	if m.config.File != "" {
		return readFile(m.config.File)
	}
	obj, exists, err := m.informer.GetStore().GetByKey(secretKey)
	if err != nil || !exists {
		return nil, err
	}
	return obj.(*corev1.Secret), nil
}

// adopt uses the Secret from now on, if it has a valid CA. A damaged one is used only if there is nothing in memory.
func (m *Managed) adopt(secret *corev1.Secret) {
	if secret == nil {
		return
	}
	found, err := read(secret)
	if found.active != nil && m.config.Clock.Now().Before(found.active.cert.NotAfter) && (err == nil || m.held == nil) {
		m.held = &found
	}
}
