// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"sync"
	"sync/atomic"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/klog/v2"
)

// ClientCA follows the file with the CAs of client certificates. If a changed file holds no
// certificate, the library refuses it and the previous CA stays.
type ClientCA struct {
	content *dynamiccertificates.DynamicFileCAContent
	pool    atomic.Pointer[x509.CertPool]
	changed notifier
}

// NewClientCA reads the file once.
func NewClientCA(file string) (*ClientCA, error) {
	content, err := dynamiccertificates.NewDynamicCAContentFromFile("webhook-client-ca", file)
	if err != nil {
		return nil, fmt.Errorf("read the client CA %q: %w", file, err)
	}
	c := &ClientCA{content: content, changed: make(notifier, 1)}
	content.AddListener(c.changed)
	return c, c.load()
}

// Pool returns the CAs to verify the next client with.
func (c *ClientCA) Pool() *x509.CertPool { return c.pool.Load() }

// Run follows the file until ctx ends.
func (c *ClientCA) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { c.content.Run(ctx, 1) })
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.changed:
		}
		if err := c.load(); err != nil {
			klog.FromContext(ctx).Error(err, "Refused the changed client CA, keeping the previous one")
		}
	}
}

func (c *ClientCA) load() error {
	options, ok := c.content.VerifyOptions()
	if !ok {
		return fmt.Errorf("use the client CA of %s: it holds no certificate", c.content.Name())
	}
	c.pool.Store(options.Roots)
	return nil
}

// ConfigForClient returns a function for tls.Config.GetConfigForClient: every handshake gets base
// with the current CAs. Base must be complete and must not change any more: of the config that the
// function is set on only the session keys are used.
func (c *ClientCA) ConfigForClient(base *tls.Config) func(*tls.ClientHelloInfo) (*tls.Config, error) {
	return func(*tls.ClientHelloInfo) (*tls.Config, error) {
		config := base.Clone()
		config.ClientCAs = c.Pool()
		return config, nil
	}
}

// notifier is a dynamiccertificates.Listener that keeps one change until it is received.
type notifier chan struct{}

// Enqueue implements dynamiccertificates.Listener.
func (n notifier) Enqueue() {
	select {
	case n <- struct{}{}:
	default: // one is pending already
	}
}
