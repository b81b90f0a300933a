// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"

	"sa-controller-manager/cmd/sa-controller-manager/app/options/secureport"
	"sa-controller-manager/cmd/sa-controller-manager/app/resolve"
	election "sa-controller-manager/internal/leaderelection"
	"sa-controller-manager/internal/series"
	"sa-controller-manager/internal/serving"
	"sa-controller-manager/signing/reload"
	"sa-controller-manager/tokens"
)

// awaitKubeconfig creates the clients, and returns nil if ctx ended before. It returns the first
// error, unless there are parts of the phase Early: kube-apiserver may need them in order to start, so
// that a bad kubeconfig must not end the process, and is tried again.
func (m *Manager) awaitKubeconfig(ctx context.Context) (*rest.Config, error) {
	config, err := m.connect()
	if err == nil || len(m.of(Early)) == 0 {
		return config, err
	}
	var last atomic.Pointer[error]
	last.Store(&err)
	check := serving.Check{Name: "kubeconfig", Probe: func() (string, error) { return "", *last.Load() }}
	// Without an API server to authorize clients, only health is served.
	o := secureport.Of(m.Options)
	authn, authz := *o.Authentication, *o.Authorization
	authn.RemoteKubeConfigFile, authn.SkipInClusterLookup, authz.RemoteKubeConfigFile = "", true, ""
	port, err := m.openSecurePort(&secureport.Options{Serving: o.Serving, Authentication: &authn, Authorization: &authz},
		nil, []serving.Check{check})
	if err != nil {
		return nil, err
	}
	waiting, stop := context.WithCancelCause(ctx)
	var health sync.WaitGroup
	health.Go(func() { stop(port.Run(waiting)) })
	until(waiting, "Failed to use the kubeconfig, serving only the external signer", func() error {
		config, err = m.connect()
		last.Store(&err)
		return err
	})
	stop(nil)
	health.Wait()
	if cause := context.Cause(waiting); !errors.Is(cause, context.Canceled) {
		return nil, cause
	}
	return config, nil
}

// connect reads the kubeconfigs and creates the clients, in place of earlier ones.
func (m *Manager) connect() (*rest.Config, error) {
	o, port := m.Options, secureport.Of(m.Options)
	config, err := resolve.ClientConfig(&o.Connection)
	if err != nil {
		return nil, err
	}
	if err := m.use(config); err != nil {
		return nil, err
	}
	// The secure port has other clients.
	for _, of := range []struct{ flag, path string }{
		{"--authentication-kubeconfig", port.Authentication.RemoteKubeConfigFile},
		{"--authorization-kubeconfig", port.Authorization.RemoteKubeConfigFile},
	} {
		if of.path == "" {
			continue
		}
		if _, err := clientcmd.BuildConfigFromFlags("", of.path); err != nil {
			return nil, fmt.Errorf("%s: %w", of.flag, err)
		}
	}
	return config, nil
}

// use creates the clients.
func (m *Manager) use(config *rest.Config) (err error) {
	config.Wrap(m.watches.Wrap)
	config.Wrap(election.FenceWrites)
	if m.Clients, err = newClients(config, m.Options.LeaderElection.RenewDeadline.Duration); err != nil {
		return err
	}
	m.ownNamespace, m.ownAccount = accountOf(config)
	m.identity, err = openClientCertificate(config)
	return err
}

// accountOf returns the account of a process in a Pod, which its token names; empty otherwise.
func accountOf(config *rest.Config) (namespace, name string) {
	token, err := os.ReadFile(config.BearerTokenFile)
	if err != nil {
		return "", ""
	}
	read, _ := tokens.Inspect(strings.TrimSpace(string(token))) // without a subject if it fails
	namespace, name, _ = serviceaccount.SplitUsername(read.Subject)
	return namespace, name
}

// clientCertificate is the expiry of the client certificate. notAfter is nil for a process without
// one, and file is nil if the certificate is embedded in the kubeconfig.
type clientCertificate struct {
	notAfter func() time.Time
	file     *reload.File[time.Time]
}

func openClientCertificate(config *rest.Config) (clientCertificate, error) {
	switch {
	case len(config.CertData) > 0:
		end, err := parseNotAfter(config.CertData)
		if err != nil {
			return clientCertificate{}, fmt.Errorf("client-certificate-data of the kubeconfig: %w", err)
		}
		return clientCertificate{notAfter: func() time.Time { return end }}, nil
	case config.CertFile != "":
		file, err := reload.Open(config.CertFile, parseNotAfter, reload.Options{})
		if err != nil {
			return clientCertificate{}, fmt.Errorf("client-certificate of the kubeconfig: %w", err)
		}
		return clientCertificate{notAfter: file.Get, file: file}, nil
	}
	return clientCertificate{}, nil
}

func parseNotAfter(data []byte) (time.Time, error) {
	chain, err := cert.ParseCertsPEM(data)
	if err != nil {
		return time.Time{}, errors.New("want PEM of a certificate")
	}
	return chain[0].NotAfter, nil
}

// status returns no error: other checks report what an expired certificate prevents.
func (c clientCertificate) status(now time.Time) string {
	end, verb := c.notAfter(), "expires"
	if !now.Before(end) {
		verb = "expired"
	}
	return fmt.Sprintf("%s at %s", verb, end.UTC().Format(time.RFC3339))
}

// buildClientCertificate reports when the certificate expires. client-go follows the file itself.
func (m *Manager) buildClientCertificate(p *Part) error {
	c := m.identity
	if c.notAfter == nil {
		return nil
	}
	series.GaugeFunc(m.Registry, "sacm_client_certificate_expiration_timestamp_seconds",
		"Unix time at which the client certificate of the kubeconfig expires.",
		func() float64 { return float64(c.notAfter().Unix()) })
	p.Check = func() (string, error) { return c.status(time.Now()), nil }
	if c.file != nil {
		p.Run = func(ctx context.Context) error {
			follow(ctx, m.files, "kubeconfig", c.file.Path(), c.file, func(time.Time) {})
			return nil
		}
	}
	return nil
}
