// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package devcluster runs a real control plane (etcd and kube-apiserver) and
// the sa-controller-manager binary beside it, for tests and demonstrations.
//
// Lifecycle: Start brings the control plane up and returns when it serves and
// its own namespaces exist; Binary.StartManager adds a manager; Cluster.Stop
// ends all of it and removes its files. In between, kube-apiserver and etcd can
// be stopped, killed and started again on the same address and the same data.
//
// Nothing is left behind, however the calling process ends. Every child asks
// the kernel to be killed when its parent dies, and a small shell, the janitor,
// waits for the end of a pipe that only the parent holds open, then removes the
// directory. So Ctrl-C, a failed test, a panic and SIGKILL need no code of
// their own. This relies on Linux.
//
// Every port is bound to 127.0.0.1. Private keys are generated for every
// cluster and lie in a directory that only its owner can read.
//
// Concurrency: accessors and StartManager may be called from any goroutine;
// calls that start or stop a part of the control plane, one at a time.
//
// The package is thin code of our own and not controller-runtime's envtest,
// because the tests need what envtest does not give: an API server that is
// restarted with other flags, an etcd that is killed, and children that die
// with their parent.
package devcluster

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sa-controller-manager/manifests"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/must"
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
	if err := must.Catch(func() { c.begin(ctx) }); err != nil {
		return nil, errors.Join(fmt.Errorf("start a control plane: %w", err), c.Stop())
	}
	return c, nil
}

func (c *Cluster) begin(ctx context.Context) {
	c.dir = must.Get(os.MkdirTemp("", "sacm-devcluster-"))
	ports := must.Get(FreePorts(3))
	c.etcdPort, c.etcdPeerPort, c.apiServerPort = ports[0], ports[1], ports[2]
	c.writeFiles()
	must.Do(c.StartEtcd())
	if c.options.BeforeAPIServer != nil {
		must.Do(c.options.BeforeAPIServer(c))
	}
	must.Do(c.StartAPIServer(ctx))
	c.applyState(ctx)
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
func (c *Cluster) writeFiles() {
	must.Do(WriteSigningKey(c.SigningKeyFile(), c.options.SigningKey))
	for name, authority := range map[string]**Authority{"serving": &c.servingCA, "client": &c.clientCA, "front-proxy": &c.proxyCA} {
		*authority = must.Get(NewAuthority("devcluster-" + name + "-ca"))
	}
	// For the loopback address and the names by which a Pod would know kube-apiserver.
	cert, key, err := c.servingCA.Server("kube-apiserver", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
		loopback)
	must.Do(err)
	files := map[string][]byte{
		c.CAFile():                   c.servingCA.PEM(),
		c.ClientCAFile():             c.clientCA.PEM(),
		c.ProxyCAFile():              c.proxyCA.PEM(),
		c.path("kube-apiserver.crt"): cert,
		c.path("kube-apiserver.key"): key,
	}
	for path, content := range files {
		must.Do(os.WriteFile(path, content, 0o600)) // the error names the path
	}
	c.admin = must.Get(c.writeIdentity(c.Kubeconfig(), "devcluster-admin", "system:masters"))
}

// awaitOwnObjects waits for what kube-apiserver creates after it says that it is
// ready.
func (c *Cluster) awaitOwnObjects(ctx context.Context) {
	client := must.Get(c.Client())
	must.Get(await.Namespaces(ctx, client, await.Named[*corev1.Namespace]("default", "kube-system")))
	// Managers look up there by which CAs to know clients.
	must.Get(await.ConfigMaps(ctx, client, "kube-system", await.Named[*corev1.ConfigMap]("extension-apiserver-authentication")))
}

// applyState creates what comes with manifests/permissions and no manager may create. Most
// managers here need no permissions, because they are the administrator.
func (c *Cluster) applyState(ctx context.Context) {
	client := must.Get(c.Client())
	for _, object := range must.Get(manifests.State()) {
		must.Do(client.CoreV1().RESTClient().Patch(types.ApplyYAMLPatchType).AbsPath(object.Path()).Body(object.YAML).
			Param("fieldManager", "devcluster").Do(ctx).Error())
	}
}

// startTimeout bounds how long a part of the control plane may take to become
// ready. A loaded machine with two cores needs about ten seconds.
const startTimeout = 2 * time.Minute

// KeyType says which kind of key signs service account tokens.
type KeyType string

const (
	// RSA is a 2048 bit RSA key in a PKCS#1 PEM block: RS256 signatures.
	RSA KeyType = "RSA"
	// ECDSA is a P-256 key in a SEC1 PEM block: ES256 signatures.
	ECDSA KeyType = "ECDSA"
)

// Options describe a control plane. The zero value is a good one.
type Options struct {
	// Issuer is that of the tokens; one that nobody can reach if empty.
	Issuer string
	// SigningKey is the type of the key made for the cluster; RSA if empty.
	SigningKey KeyType
	// ExtraKeyFiles are further files with keys, public or private, whose tokens
	// kube-apiserver accepts.
	ExtraKeyFiles []string
	// ExternalSigner has kube-apiserver take signatures and keys from a process that serves
	// on Cluster.SignerSocket, and from no file. Without one it does not start, so this
	// goes with BeforeAPIServer.
	ExternalSigner bool
	// BeforeAPIServer is called when all but kube-apiserver is there, before that starts
	// for the first time; so for each that joins. What it starts may outlive it.
	BeforeAPIServer func(*Cluster) error
	// APIServerFlags are kube-apiserver flags by name, without dashes. An entry
	// replaces every value that the cluster would give that flag; an entry with
	// no value removes the flag. Authorization is RBAC unless authorization-mode
	// says otherwise here.
	APIServerFlags map[string][]string
	// Log, unless nil, receives the output of etcd and kube-apiserver as it comes.
	Log io.Writer
}

const productModule = "sa-controller-manager"

// repositoryRoot is the directory of the product's go.mod, searched from the
// working directory upwards: go test runs in the directory of its package, the
// commands wherever make was called.
func repositoryRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the working directory: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		content, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.HasPrefix(content, []byte("module "+productModule+"\n")) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no directory from %s upwards holds the go.mod of %s", start, productModule)
		}
	}
}

// ControlPlaneBinary is the path of a Kubernetes or etcd binary: in
// KUBEBUILDER_ASSETS if that is set, else where make control-plane puts it.
func ControlPlaneBinary(name string) (string, error) {
	if assets := os.Getenv("KUBEBUILDER_ASSETS"); assets != "" {
		return existing(filepath.Join(assets, name), "KUBEBUILDER_ASSETS names that directory")
	}
	root, err := repositoryRoot()
	if err != nil {
		return "", err
	}
	return existing(filepath.Join(root, "bin", "control-plane", name), "make control-plane builds it")
}

// APIServerMinor is 37 if kube-apiserver is some v1.37.
func APIServerMinor(ctx context.Context) (int, error) {
	path, err := ControlPlaneBinary("kube-apiserver")
	if err != nil {
		return 0, err
	}
	version, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return 0, fmt.Errorf("%s --version: %w", path, err)
	}
	var minor int
	if _, err := fmt.Sscanf(string(version), "Kubernetes v1.%d.", &minor); err != nil {
		return 0, fmt.Errorf("%s --version: %q: %w", path, version, err)
	}
	return minor, nil
}

func existing(path, hint string) (string, error) {
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("find %s (%s): %w", filepath.Base(path), hint, err)
	}
	return path, nil
}
