// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/klog/v2"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/internal/leaderelection"
)

// clients are separate because leader election must not wait behind other requests.
type clients struct {
	main     kubernetes.Interface
	election kubernetes.Interface
	accounts map[string]kubernetes.Interface // by controller; see of
}

// newClients gives the election client no more time for a request than a renewal
// has, so that a hanging connection costs a try and not the lease.
func newClients(config *rest.Config, renewDeadline time.Duration) (clients, error) {
	main, err := kubernetes.NewForConfig(config)
	if err != nil {
		return clients{}, fmt.Errorf("build the API client: %w", err)
	}
	electionConfig := rest.AddUserAgent(rest.CopyConfig(config), "leader-election")
	electionConfig.Timeout = renewDeadline / 2
	election, err := kubernetes.NewForConfig(electionConfig)
	if err != nil {
		return clients{}, fmt.Errorf("build the leader election client: %w", err)
	}
	return clients{main: main, election: election}, nil
}

// of is the client that a controller writes with. Everything is read through the
// watches of the process.
func (c *clients) of(controller string) kubernetes.Interface {
	if client, ok := c.accounts[controller]; ok {
		return client
	}
	return c.main
}

// useAccounts gives each controller a client with its own account. Nothing is sent
// before a controller's first request: only a leader that has something to do asks
// for a token, and for another one when four fifths of an hour are over.
func (c *clients) useAccounts(config *rest.Config) error {
	// The library waits without a context.
	bounded := rest.CopyConfig(config)
	bounded.Timeout = cli.ContactTimeout
	issuer, err := kubernetes.NewForConfig(bounded)
	if err != nil {
		return fmt.Errorf("build the client for tokens of controllers: %w", err)
	}
	builder := clientbuilder.NewDynamicClientBuilder(rest.AnonymousClientConfig(config), issuer.CoreV1(), metav1.NamespaceSystem)
	c.accounts = map[string]kubernetes.Interface{}
	for controller, account := range options.ControllerAccounts() {
		own := rest.AnonymousClientConfig(config)
		rest.AddUserAgent(own, serviceaccount.MakeUsername(metav1.NamespaceSystem, account))
		own.Wrap(func(base http.RoundTripper) http.RoundTripper {
			return &accountTransport{base: base, account: account, builder: builder}
		})
		// An anonymous copy has no wrappers of the original.
		own.Wrap(leaderelection.FenceWrites)
		if c.accounts[controller], err = kubernetes.NewForConfig(own); err != nil {
			return fmt.Errorf("build the client of %s: %w", account, err)
		}
	}
	return nil
}

// accountTransport sends requests as an account. The library's own clients make the
// account when they are built; this one when it is first used, and again later if
// that failed. It is safe for concurrent use.
type accountTransport struct {
	base    http.RoundTripper
	account string
	builder clientbuilder.ControllerClientBuilder

	mu            sync.Mutex
	authenticated http.RoundTripper // nil until the account is there
}

// RoundTrip is http.RoundTripper's.
func (t *accountTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	transport, err := t.authenticate()
	if err != nil {
		return nil, fmt.Errorf("act as ServiceAccount %s/%s: %w", metav1.NamespaceSystem, t.account, err)
	}
	return transport.RoundTrip(request)
}

func (t *accountTransport) authenticate() (http.RoundTripper, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.authenticated != nil {
		return t.authenticated, nil
	}
	config, err := t.builder.Config(t.account)
	if err != nil {
		return nil, err
	}
	t.authenticated = config.WrapTransport(t.base)
	return t.authenticated, nil
}

const (
	// A kube-apiserver that has come back waits for our admission webhook.
	firstContactBackoff = 500 * time.Millisecond
	maxContactBackoff   = 2 * time.Second
)

// awaitAPIServer asks until the API server answers and reports whether that came
// before ctx ended. It logs one line a try, where the informers would log several
// for each thing that they watch.
func awaitAPIServer(ctx context.Context, client kubernetes.Interface) bool {
	logger := klog.FromContext(ctx)
	for backoff := firstContactBackoff; ; backoff = min(2*backoff, maxContactBackoff) {
		version, err := cli.ServerVersion(ctx, client)
		if err == nil {
			logger.Info("Connected to the API server", "version", version)
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		logger.Error(err, "The API server does not answer yet", "retryIn", backoff)
		select {
		case <-ctx.Done():
			return false
		case <-time.After(backoff):
		}
	}
}
