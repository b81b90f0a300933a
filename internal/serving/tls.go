// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"crypto/tls"
	"fmt"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	cliflag "k8s.io/component-base/cli/flag"

	"sa-controller-manager/internal/serving/settings"
)

// runnable runs until ctx ends.
type runnable func(ctx context.Context)

// asRunnable converts a controller of the library. These always run one worker, whatever the
// argument.
func asRunnable(runner interface {
	Run(ctx context.Context, workers int)
}) runnable {
	return func(ctx context.Context) { runner.Run(ctx, 1) }
}

// servingTLS is the TLS configuration of the secure port. Every handshake uses the current
// certificates and client CAs.
type servingTLS struct {
	config    *tls.Config
	followers []runnable
}

// newServingTLS reads all files once. With a nil clientCA clients are not asked for a certificate.
// The handshake does not verify client certificates: authentication does, and responds with 401 to
// an invalid one.
func newServingTLS(config *Config, clientCA dynamiccertificates.CAContentProvider) (*servingTLS, error) {
	base, err := tlsConfig(&config.Port)
	if err != nil {
		return nil, err
	}
	if clientCA != nil {
		base.ClientAuth = tls.RequestClientCert
	}
	cert, err := certificate(config.Name, &config.Port)
	if err != nil {
		return nil, err
	}
	sni, err := sniCertificates(&config.Port.TLS)
	if err != nil {
		return nil, err
	}
	controller := dynamiccertificates.NewDynamicServingCertificateController(base, clientCA, cert, sni, nil)
	s := &servingTLS{config: base.Clone()}
	s.config.GetConfigForClient = controller.GetConfigForClient
	if clientCA != nil {
		clientCA.AddListener(controller) // the filter runs it
	}
	s.follow(controller, cert)
	for _, c := range sni {
		s.follow(controller, c)
	}
	if err := controller.RunOnce(); err != nil {
		return nil, fmt.Errorf("use the serving certificate: %w", err)
	}
	s.followers = append(s.followers, func(ctx context.Context) { controller.Run(1, ctx.Done()) })
	return s, nil
}

// follow notifies controller of every change of a certificate.
func (s *servingTLS) follow(controller *dynamiccertificates.DynamicServingCertificateController, cert dynamiccertificates.Notifier) {
	cert.AddListener(controller)
	if runner, ok := cert.(dynamiccertificates.ControllerRunner); ok {
		s.followers = append(s.followers, asRunnable(runner))
	}
}

// tlsConfig returns the configuration without certificates.
func tlsConfig(o *settings.Port) (*tls.Config, error) {
	ciphers, err := cliflag.TLSCipherSuites(o.TLS.CipherSuites)
	if err != nil {
		return nil, fmt.Errorf("--tls-cipher-suites: %w", err)
	}
	version, err := cliflag.TLSVersion(o.TLS.MinVersion)
	if err != nil {
		return nil, fmt.Errorf("--tls-min-version: %w", err)
	}
	curves, err := cliflag.TLSCurvePreferences(o.TLS.CurvePreferences)
	if err != nil {
		return nil, fmt.Errorf("--tls-curve-preferences: %w", err)
	}
	config := &tls.Config{
		MinVersion:       version,
		CipherSuites:     ciphers,
		CurvePreferences: curves,
		NextProtos:       []string{"h2", "http/1.1"},
	}
	if o.DisableHTTP2 {
		config.NextProtos = []string{"http/1.1"}
	}
	return config, nil
}

func sniCertificates(o *settings.TLS) ([]dynamiccertificates.SNICertKeyContentProvider, error) {
	var contents []dynamiccertificates.SNICertKeyContentProvider
	for _, named := range o.SNICertKeys {
		content, err := dynamiccertificates.NewDynamicSNIContentFromFiles("sni-serving-cert", named.CertFile, named.KeyFile, named.Names...)
		if err != nil {
			return nil, fmt.Errorf("--tls-sni-cert-key: %w", err)
		}
		contents = append(contents, content)
	}
	return contents, nil
}
