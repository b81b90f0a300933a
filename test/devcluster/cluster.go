// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sa-controller-manager/manifests"

	"sa-controller-manager/test/await"
)

// Cluster is a running control plane and the managers started beside it.
type Cluster struct {
	options Options
	dir     string
	host    *host // nil for this machine
	joined  bool  // etcd is another Cluster's

	etcdPort, etcdPeerPort, apiServerPort int

	servingCA, clientCA, proxyCA *Authority
	admin                        *rest.Config

	etcd, apiServer *process

	mu       sync.Mutex
	managers []*Manager
}

// Start starts etcd and kube-apiserver and returns when the API is ready, the namespaces that it
// makes for itself exist, and so does the state that comes with manifests/permissions. If it returns an error or ctx
// ends first, nothing is left.
func Start(ctx context.Context, options Options) (*Cluster, error) {
	c := &Cluster{options: options}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start a control plane: %w", err), c.Stop())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "sacm-devcluster-")
	if err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	c.dir = dir
	ports, err := FreePorts(3)
	if err != nil {
		return err
	}
	c.etcdPort, c.etcdPeerPort, c.apiServerPort = ports[0], ports[1], ports[2]
	if err := c.writeFiles(); err != nil {
		return err
	}
	if err := c.StartEtcd(); err != nil {
		return err
	}
	if c.options.BeforeAPIServer != nil {
		if err := c.options.BeforeAPIServer(c); err != nil {
			return err
		}
	}
	if err := c.StartAPIServer(ctx); err != nil {
		return err
	}
	return c.applyState(ctx)
}

// Stop ends every manager and the control plane and removes their files. What
// Manager.Stop takes for an error in any manager ever started is one here too.
// It may be called more than once.
func (c *Cluster) Stop() error {
	c.mu.Lock()
	managers := c.managers
	c.managers = nil
	c.mu.Unlock()

	var errs []error
	for _, m := range managers {
		_, err := m.Stop()
		errs = append(errs, err)
	}
	// Nothing of the control plane is kept, so it need not end in order.
	for _, p := range []*process{c.apiServer, c.etcd} {
		if p != nil && !(c.joined && p == c.etcd) {
			_, err := p.Kill()
			errs = append(errs, err)
		}
	}
	errs = append(errs, c.host.close())
	c.host = nil
	if !c.joined {
		errs = append(errs, os.RemoveAll(c.dir))
	}
	return errors.Join(errs...)
}

// Config returns the configuration of a client that may do everything and that
// is not limited in its rate. The caller owns the copy.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.admin) }

// Client returns a new client with Config.
func (c *Cluster) Client() (kubernetes.Interface, error) {
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return nil, fmt.Errorf("make an admin client: %w", err)
	}
	return client, nil
}

// Dir is the directory of the cluster's files. It goes when the cluster stops;
// callers may put files of their own there.
func (c *Cluster) Dir() string { return c.dir }

// Kubeconfig is the path of a kubeconfig file equivalent to Config.
func (c *Cluster) Kubeconfig() string { return c.path("admin.kubeconfig") }

// CAFile is the path of the PEM certificate that vouches for kube-apiserver's
// serving certificate: a manager's root CA file.
func (c *Cluster) CAFile() string { return c.path("serving-ca.crt") }

// ClientCAFile is the path of the PEM certificate that vouches for the client
// certificates of Config and Identity.
func (c *Cluster) ClientCAFile() string { return c.path("client-ca.crt") }

// ProxyCAFile is the path of the PEM certificate that vouches for proxies which say
// in headers who the client is.
func (c *Cluster) ProxyCAFile() string { return c.path("front-proxy-ca.crt") }

// SignerSocket is the path of the socket that kube-apiserver has its tokens signed on
// with Options.ExternalSigner.
func (c *Cluster) SignerSocket() string { return c.path("signer.sock") }

// SigningKeyFile is the path of the PEM private key whose tokens kube-apiserver
// issues and accepts.
func (c *Cluster) SigningKeyFile() string { return c.path("service-account.key") }

// Issuer is the service account issuer; unless the options say otherwise, as kubeadm configures it.
func (c *Cluster) Issuer() string {
	return cmp.Or(c.options.Issuer, "https://kubernetes.default.svc.cluster.local")
}

func (c *Cluster) path(name string) string { return filepath.Join(c.dir, name) }

// writeFiles makes keys, certificates and the admin's kubeconfig.
func (c *Cluster) writeFiles() error {
	if err := WriteSigningKey(c.SigningKeyFile(), c.options.SigningKey); err != nil {
		return err
	}
	var err error
	for name, authority := range map[string]**Authority{"serving": &c.servingCA, "client": &c.clientCA, "front-proxy": &c.proxyCA} {
		if *authority, err = NewAuthority("devcluster-" + name + "-ca"); err != nil {
			return err
		}
	}
	// For the loopback address and the names by which a Pod would know kube-apiserver.
	cert, key, err := c.servingCA.Server("kube-apiserver", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", loopback)
	if err != nil {
		return err
	}
	files := map[string][]byte{
		c.CAFile():                   c.servingCA.PEM(),
		c.ClientCAFile():             c.clientCA.PEM(),
		c.ProxyCAFile():              c.proxyCA.PEM(),
		c.path("kube-apiserver.crt"): cert,
		c.path("kube-apiserver.key"): key,
	}
	for path, content := range files {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return fmt.Errorf("write %s: %w", filepath.Base(path), err)
		}
	}
	c.admin, err = c.writeIdentity(c.Kubeconfig(), "devcluster-admin", "system:masters")
	return err
}

// awaitOwnObjects waits for what kube-apiserver creates after it says that it is
// ready.
func (c *Cluster) awaitOwnObjects(ctx context.Context) error {
	client, err := c.Client()
	if err != nil {
		return err
	}
	if _, err = await.Namespaces(ctx, client, await.Named[*corev1.Namespace]("default", "kube-system")); err != nil {
		return err
	}
	// Managers look up there by which CAs to know clients.
	_, err = await.ConfigMaps(ctx, client, "kube-system", await.Named[*corev1.ConfigMap]("extension-apiserver-authentication"))
	return err
}

// applyState creates what comes with manifests/permissions and no manager may create. Most
// managers here need no permissions, because they are the administrator.
func (c *Cluster) applyState(ctx context.Context) error {
	client, err := c.Client()
	if err != nil {
		return err
	}
	secrets, err := manifests.State()
	if err != nil {
		return err
	}
	for _, object := range secrets {
		err := client.CoreV1().RESTClient().Patch(types.ApplyYAMLPatchType).AbsPath(object.Path()).Body(object.YAML).
			Param("fieldManager", "devcluster").Do(ctx).Error()
		if err != nil {
			return fmt.Errorf("apply %s: %w", object, err)
		}
	}
	return nil
}
