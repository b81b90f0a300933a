// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// ClientCA follows the file with the CAs of client certificates. If a changed file holds no
// certificate, the library refuses it and the previous CA stays.
type ClientCA struct {
	content *dynamiccertificates.DynamicFileCAContent
}

// NewClientCA reads the file once.
func NewClientCA(file string) (*ClientCA, error) {
	content, err := dynamiccertificates.NewDynamicCAContentFromFile("webhook-client-ca", file)
	if err != nil {
		return nil, fmt.Errorf("read the client CA %q: %w", file, err)
	}
	return &ClientCA{content}, nil
}

// Pool returns the CAs to verify the next client with.
func (c *ClientCA) Pool() *x509.CertPool {
	if options, ok := c.content.VerifyOptions(); ok {
		return options.Roots
	}
	return x509.NewCertPool() // nil would mean those of the system
}

// Run follows the file until ctx ends.
func (c *ClientCA) Run(ctx context.Context) error {
	c.content.Run(ctx, 1)
	return nil
}

// ConfigForClient returns a function for tls.Config.GetConfigForClient: every handshake gets base
// with the current CAs. Base must be complete and must not change any more: of the config that the
// function is set on, only the session ticket keys are used.
func (c *ClientCA) ConfigForClient(base *tls.Config) func(*tls.ClientHelloInfo) (*tls.Config, error) {
	return func(*tls.ClientHelloInfo) (*tls.Config, error) {
		config := base.Clone()
		config.ClientCAs = c.Pool()
		return config, nil
	}
}
