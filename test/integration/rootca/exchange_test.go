// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

const (
	trustBundleAlone = "--controllers=kube-apiserver-serving-clustertrustbundle-publisher-controller"
	bothPublishers   = publisherAlone + ",kube-apiserver-serving-clustertrustbundle-publisher-controller"
)

// TestRootCAExchange exchanges the root CA and then the serving certificate of kube-apiserver while two clients
// connect: one trusts kube-root-ca.crt, the other the ClusterTrustBundle.
func TestRootCAExchange(t *testing.T) {
	e := newExchange(t)
	first, second := e.authority(t), e.authority(t)
	file := caFile(t, string(first.PEM()))
	e.serve(t, first)
	e.ControlPlane = testcluster.New(t, devcluster.Options{
		APIServerFlags: map[string][]string{"tls-sni-cert-key": {e.cert.Path + "," + e.key.Path + ":" + serverName}},
	})
	rootCA := "--root-ca-file=" + file.Path

	kcm := e.StartKCM(t, trustBundleAlone, rootCA) // before a takeover
	m := e.Manage(t, publisherAlone, rootCA)
	clients := e.connect(t)
	clients.await(t, first, first)
	testcluster.StopKCM(t, kcm)
	m.Shutdown(t)

	m = e.Manage(t, bothPublishers, rootCA, "--root-ca-overlap=1h")
	file.Replace(t, second.PEM())
	clients.await(t, union(second, first), union(second, first))
	e.serve(t, second)
	e.awaitServed(t, second)
	m.Shutdown(t)
	m = e.Manage(t, bothPublishers, rootCA, "--root-ca-overlap=0s") // ends it
	clients.await(t, second, second)
	m.Shutdown(t)

	tried, failed := clients.stop(t)
	t.Logf("connections %v, failed %v", tried, failed)
	testutil.Check(t, "failed connections by kube-root-ca.crt and by the bundle", [2]int{}, failed)
	if tried[0] < 50 || tried[1] < 50 {
		t.Errorf("%v connections, want 50 of each client", tried)
	}
	if fewest, most := clients.bundles(); fewest != 1 || most != 2 {
		t.Errorf("between %d and %d bundles, want one, and two during a change", fewest, most)
	}
}

// serverName selects the serving certificate that is exchanged. Other clients of kube-apiserver use another.
const serverName = "exchanged.example"

type exchange struct {
	*testcluster.ControlPlane
	cert, key testcluster.KeyFile
}

func newExchange(t *testing.T) *exchange {
	t.Helper()
	dir := t.TempDir()
	return &exchange{
		cert: testcluster.KeyFile{Path: filepath.Join(dir, "tls.crt")}, key: testcluster.KeyFile{Path: filepath.Join(dir, "tls.key")},
	}
}

func (e *exchange) authority(t *testing.T) *devcluster.Authority {
	t.Helper()
	ca, err := devcluster.NewAuthority("root")
	testutil.Must(t, err)
	return ca
}

type trusted interface{ PEM() []byte }

type certificates []byte

func (c certificates) PEM() []byte { return c }

func union(authorities ...trusted) certificates {
	var all []byte
	for _, one := range authorities {
		all = append(all, one.PEM()...)
	}
	return all
}

// serve replaces the files of the serving certificate. kube-apiserver uses them once they fit together.
func (e *exchange) serve(t *testing.T, by *devcluster.Authority) {
	t.Helper()
	cert, key, err := by.Server(serverName)
	testutil.Must(t, err)
	e.key.Replace(t, key)
	e.cert.Replace(t, cert)
}

// awaitServed returns once kube-apiserver has a certificate that ca alone verifies.
func (e *exchange) awaitServed(t *testing.T, ca *devcluster.Authority) {
	t.Helper()
	testutil.Must(t, await.Poll(testcluster.Context(t), func(ctx context.Context) error { return e.dial(ctx, ca.PEM()) }))
}

// dial connects as a client that trusts these certificates.
func (e *exchange) dial(ctx context.Context, trust []byte) error {
	server, err := url.Parse(e.Config().Host)
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(trust)
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: pool, ServerName: serverName, MinVersion: tls.VersionTLS12}}
	connection, err := dialer.DialContext(ctx, "tcp", server.Host)
	if err != nil {
		return err
	}
	return connection.Close()
}

// clients connect all the time: the first with the content of kube-root-ca.crt, the second with that of all
// bundles of the signer, as kubelet projects them.
type clients struct {
	*exchange
	ends func()

	mu            sync.Mutex
	configMap     string
	live          map[string]string // content of the bundles, by name
	fewest, most  int
	tried, failed [2]int
	unexpected    error
}

func (e *exchange) connect(t *testing.T) *clients {
	t.Helper()
	c := &clients{exchange: e, live: map[string]string{}}
	ctx, cancel := context.WithCancel(t.Context())
	configMaps := informers.NewSharedInformerFactoryWithOptions(e.API, 0, informers.WithNamespace(metav1.NamespaceDefault))
	bundles := informers.NewSharedInformerFactory(e.API, 0)
	see := func(obj any, deleted bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		switch one := obj.(type) {
		case *corev1.ConfigMap:
			if one.Name == testcluster.RootCAName {
				c.configMap = one.Data["ca.crt"]
			}
		case *certificatesv1.ClusterTrustBundle:
			if c.live[one.Name] = one.Spec.TrustBundle; deleted {
				delete(c.live, one.Name)
			}
			if c.most == 0 {
				c.fewest = len(c.live)
			}
			c.fewest, c.most = min(c.fewest, len(c.live)), max(c.most, len(c.live))
		}
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { see(obj, false) },
		UpdateFunc: func(_, obj any) { see(obj, false) },
		DeleteFunc: func(obj any) { see(obj, true) },
	}
	for _, informer := range []cache.SharedIndexInformer{
		configMaps.Core().V1().ConfigMaps().Informer(), bundles.Certificates().V1().ClusterTrustBundles().Informer(),
	} {
		_, err := informer.AddEventHandler(handler)
		testutil.Must(t, err)
	}
	configMaps.StartWithContext(ctx)
	bundles.StartWithContext(ctx)
	var connecting sync.WaitGroup
	for i := range c.tried {
		connecting.Go(func() { await.Every(ctx, 10*time.Millisecond, func(ctx context.Context, _ int) { c.try(ctx, i) }) })
	}
	c.ends = sync.OnceFunc(func() {
		cancel()
		connecting.Wait()
		configMaps.Shutdown()
		bundles.Shutdown()
	})
	t.Cleanup(c.ends)
	return c
}

// trust returns what a client trusts, and whether both have begun.
func (c *clients) trust(i int) (pem string, begun bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i == 0 {
		return c.configMap, c.configMap != "" && c.most > 0
	}
	var all strings.Builder
	for _, one := range c.live {
		all.WriteString(one)
	}
	return all.String(), c.configMap != "" && c.most > 0
}

func (c *clients) try(ctx context.Context, i int) {
	trust, begun := c.trust(i)
	if !begun {
		return
	}
	err := c.dial(ctx, []byte(trust))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tried[i]++
	if err != nil {
		c.failed[i]++
		if !errors.As(err, new(*tls.CertificateVerificationError)) {
			c.unexpected = errors.Join(c.unexpected, err)
		}
	}
}

// await returns once there is one bundle, and both clients trust this.
func (c *clients) await(t *testing.T, configMap, bundle trusted) {
	t.Helper()
	testutil.Must(t, await.Poll(testcluster.Context(t), func(context.Context) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.configMap != string(configMap.PEM()) {
			return errors.New("kube-root-ca.crt does not hold the wanted certificates")
		}
		for _, one := range c.live {
			if len(c.live) == 1 && one == string(bundle.PEM()) {
				return nil
			}
		}
		return fmt.Errorf("%d bundles, want one with the wanted certificates", len(c.live))
	}))
}

func (c *clients) stop(t *testing.T) (tried, failed [2]int) {
	t.Helper()
	c.ends()
	testutil.Must(t, c.unexpected)
	return c.tried, c.failed
}

func (c *clients) bundles() (fewest, most int) { return c.fewest, c.most }
