// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package testcluster runs sa-controller-manager on a real etcd and a real kube-apiserver for the
// tests beside it.
//
// kube-apiserver's own TokenReview judges every token. The binary under test is the one that
// devcluster.FindBinary finds. It runs as a process with ordinary flags, and the tests observe
// what an operator observes: objects, Events, health endpoints, metrics, log and exit code.
//
// Most tests of a package share one control plane, which starts when the first test needs it.
// A manager works on a whole cluster, so these tests run one after the other, each with a manager
// that has its own flags. Their subtests may run in parallel, each in its own namespace. Tests that
// need a kube-apiserver with other flags, or the whole cluster, have their own control planes and run
// in parallel at the end.
//
// Tests wait by watch, or poll an endpoint that has none. To show that nothing happens, a test
// calls AwaitProcessed: another object goes through the same watches and queues, and once the
// manager has processed it and is idle, it has processed everything before it.
//
// No test may cause a data race, an exit code other than 0 after SIGTERM, an error in the log
// where no fault was injected, or a token or a part of a private key in a log at the highest
// level, in a metric or in an Event. The package checks this for every manager that it starts.
package testcluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/tokenrecord"
)

// Timeout bounds every wait. It is long because only a failing test
// uses it up.
const Timeout = 3 * time.Minute

// ControlPlane is a running control plane with a client and a record of its tokens.
type ControlPlane struct {
	*devcluster.Cluster

	API    kubernetes.Interface
	Tokens *tokenrecord.Record

	// hangUp closes connections to kube-apiserver, and hangUpManagers those to
	// managers: a manager that ends waits a second for HTTP/2 clients to leave.
	hangUp, hangUpManagers func()

	mu         sync.Mutex
	namespaces []string // made for tests and not purged yet
}

func startControlPlane(ctx context.Context, options devcluster.Options) (*ControlPlane, error) {
	cluster, err := devcluster.Start(ctx, options)
	if err != nil {
		return nil, err
	}
	c := &ControlPlane{Cluster: cluster}
	if err := c.connect(); err != nil {
		return nil, errors.Join(err, cluster.Stop())
	}
	key, err := os.ReadFile(cluster.SigningKeyFile())
	if err != nil {
		return nil, errors.Join(err, cluster.Stop())
	}
	Leaks.AddKey(key)
	return c, nil
}

func (c *ControlPlane) connect() error {
	config := c.Config()
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("make an admin client: %w", err)
	}
	if c.API, err = kubernetes.NewForConfigAndClient(config, transport); err != nil {
		return fmt.Errorf("make an admin client: %w", err)
	}
	c.hangUp = hangUp(transport)
	c.Tokens = tokenrecord.Start(c.API)

	// client-go shares one transport among clients with equal TLS settings, so devcluster's clients
	// of managers use this one, too.
	config = c.Config()
	config.TLSClientConfig.CAData, config.TLSClientConfig.Insecure = nil, true
	if transport, err = rest.HTTPClientFor(config); err != nil {
		return fmt.Errorf("make a client for managers: %w", err)
	}
	c.hangUpManagers = hangUp(transport)
	return nil
}

// hangUp closes the idle connections below client-go's wrappers, which http.Client does not reach.
func hangUp(client *http.Client) func() {
	return func() { utilnet.CloseIdleConnectionsFor(client.Transport) }
}

// stop hands everything that could hold a token to the canary and stops everything.
func (c *ControlPlane) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	defer cancel()
	Leaks.AddTokens(c.Tokens.End())
	events, err := c.API.CoreV1().RESTClient().Get().AbsPath("/apis/events.k8s.io/v1/events").
		SetHeader("Accept", "application/json").DoRaw(ctx)
	if err != nil {
		err = fmt.Errorf("list all events: %w", err)
	}
	Leaks.Add("Events", string(events))
	c.hangUp()
	c.hangUpManagers()
	return errors.Join(err, c.Stop())
}

// New starts a control plane for one test, such as one that restarts kube-apiserver.
func New(t *testing.T, options devcluster.Options) *ControlPlane {
	t.Helper()
	c := testutil.Get(startControlPlane(t.Context(), options))(t)
	t.Cleanup(func() { testutil.CheckError(t, "stop the control plane", "", c.stop()) })
	return c
}

// Namespace creates a namespace for one test.
func (c *ControlPlane) Namespace(t *testing.T) string {
	t.Helper()
	namespace := testutil.Get(c.API.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
	}, metav1.CreateOptions{}))(t)
	c.purgeLater(namespace.Name)
	return namespace.Name
}

func (c *ControlPlane) purgeLater(namespaces ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.namespaces = append(c.namespaces, namespaces...)
}

// purge deletes the namespaces of a test as a namespace controller would, so that its objects do not
// slow down later managers.
func (c *ControlPlane) purge(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	namespaces := c.namespaces
	c.namespaces = nil
	c.mu.Unlock()
	ctx := cleanupContext(t)
	var working sync.WaitGroup
	next := make(chan string)
	for range 10 {
		working.Go(func() {
			for name := range next {
				testutil.CheckError(t, "purge namespace "+name, "", c.purgeOne(ctx, name))
			}
		})
	}
	for _, name := range namespaces {
		next <- name
	}
	close(next)
	working.Wait()
}

func (c *ControlPlane) purgeOne(ctx context.Context, name string) error {
	noFinalizers := []byte(`{"metadata":{"finalizers":null}}`)
	secrets, err := c.API.CoreV1().Secrets(name).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	accounts, err := c.API.CoreV1().ServiceAccounts(name).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, secret := range secrets.Items {
		if len(secret.Finalizers) > 0 {
			_, err = c.API.CoreV1().Secrets(name).Patch(ctx, secret.Name, types.MergePatchType, noFinalizers, metav1.PatchOptions{})
		}
	}
	for _, account := range accounts.Items {
		if len(account.Finalizers) > 0 {
			_, err = c.API.CoreV1().ServiceAccounts(name).Patch(ctx, account.Name, types.MergePatchType, noFinalizers,
				metav1.PatchOptions{})
		}
	}
	if err != nil {
		return err
	}
	everything := metav1.ListOptions{}
	if err := errors.Join(
		c.API.CoreV1().ServiceAccounts(name).DeleteCollection(ctx, metav1.DeleteOptions{}, everything),
		c.API.CoreV1().Secrets(name).DeleteCollection(ctx, metav1.DeleteOptions{}, everything),
		c.API.CoreV1().ConfigMaps(name).DeleteCollection(ctx, metav1.DeleteOptions{}, everything),
		c.API.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}),
	); err != nil {
		return err
	}
	_, err = c.API.CoreV1().Namespaces().Finalize(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.UpdateOptions{})
	return err
}

// Context returns a context that bounds a wait.
func Context(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), Timeout, fmt.Errorf("not within %s", Timeout))
	t.Cleanup(cancel)
	return ctx
}

// Poll calls ok until it returns nil. Use it for the answers of endpoints, which no watch announces.
func Poll(t *testing.T, what string, ok func() error) {
	t.Helper()
	err := await.Poll(Context(t), func(context.Context) error { return ok() })
	testutil.Require(t, err == nil, "%s: %v", what, err)
}

// RootCA returns the root CA that managers publish.
func (c *ControlPlane) RootCA(t *testing.T) string {
	t.Helper()
	pem := testutil.Get(os.ReadFile(c.CAFile()))(t)
	return string(pem)
}
