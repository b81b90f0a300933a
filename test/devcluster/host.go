// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/keyutil"
	"sa-controller-manager/internal/pki"

	"sa-controller-manager/test/must"
)

// host looks like another machine to a control plane: it has its own name
// and its own loopback interface, and nothing leads from one to the other but what
// forward carries. It is a thread in namespaces of its own, which processes that it starts
// inherit. A nil host is this machine.
type host struct {
	work  chan func()
	ended chan struct{}

	mu        sync.Mutex
	listeners []net.Listener
	carrying  sync.WaitGroup
}

// newHost needs the rights of root; without them the error is os.ErrPermission.
func newHost(name string) (*host, error) {
	h := &host{work: make(chan func()), ended: make(chan struct{})}
	made := make(chan error)
	go func() {
		defer close(h.ended)
		// Never unlocked: the thread ends with this goroutine, because no other goroutine could
		// use it any more.
		runtime.LockOSThread()
		err := isolate(name)
		made <- err
		if err != nil {
			return
		}
		for f := range h.work {
			f()
		}
	}()
	if err := <-made; err != nil {
		return nil, fmt.Errorf("make host %s: %w", name, err)
	}
	return h, nil
}

// isolate gives the calling thread a name and a loopback interface.
func isolate(name string) error {
	if err := unix.Unshare(unix.CLONE_NEWUTS | unix.CLONE_NEWNET); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	if err := unix.Sethostname([]byte(name)); err != nil {
		return os.NewSyscallError("sethostname", err)
	}
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer func() { _ = unix.Close(socket) }()
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	return os.NewSyscallError("ioctl", unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, lo))
}

// do calls f on the host and waits.
func (h *host) do(f func()) {
	if h == nil {
		f()
		return
	}
	done := make(chan struct{})
	h.work <- func() { defer close(done); f() }
	<-done
}

func (h *host) listen(address string) (listener net.Listener, err error) {
	h.do(func() { listener, err = net.Listen("tcp", address) })
	return listener, err
}

// dial opens the socket on the host's thread, which is where it belongs to from then on.
func (h *host) dial(address string) (connection net.Conn, err error) {
	h.do(func() { connection, err = (&net.Dialer{}).DialContext(context.Background(), "tcp", address) })
	return connection, err
}

// forward connects a loopback port of one host with the same port of another.
// It ends when h does.
func (h *host) forward(port int, from, to *host) error {
	listener, err := from.listen(address(port))
	if err != nil {
		return fmt.Errorf("forward port %d: %w", port, err)
	}
	h.mu.Lock()
	h.listeners = append(h.listeners, listener)
	h.mu.Unlock()
	h.carrying.Go(func() {
		for {
			caller, err := listener.Accept()
			if err != nil {
				return
			}
			h.carrying.Go(func() { carry(caller, to, address(port)) })
		}
	})
	return nil
}

// carry copies both ways until one side is done.
func carry(caller net.Conn, to *host, address string) {
	defer caller.Close()
	callee, err := to.dial(address)
	if err != nil {
		return // the caller sees a connection that ends, as with a server on its way out
	}
	defer callee.Close()
	done := make(chan struct{}, 2)
	for _, pair := range [][2]net.Conn{{caller, callee}, {callee, caller}} {
		go func() {
			_, _ = pair[0].(*net.TCPConn).ReadFrom(pair[1])
			done <- struct{}{}
		}()
	}
	<-done
	_, _ = caller.Close(), callee.Close()
	<-done
}

// close ends the host. Its processes must have ended: they die with its thread.
func (h *host) close() error {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	for _, listener := range h.listeners {
		errs = append(errs, listener.Close())
	}
	h.carrying.Wait()
	close(h.work)
	<-h.ended
	return errors.Join(errs...)
}

// Join starts another kube-apiserver on the same etcd, with the same files and flags, on
// a host of its own: its hostname is the given name, and its loopback interface is another
// one, so that what listens on 127.0.0.1 here does not listen there. The Cluster that it
// returns is that host. Its clients work from here, and managers that are started beside
// it run there.
//
// It is an error that is os.ErrPermission if the process may not make such a host. The
// result has to be stopped before c, which keeps etcd.
func (c *Cluster) Join(ctx context.Context, name string) (*Cluster, error) {
	made, err := newHost(name)
	if err != nil {
		return nil, err
	}
	joined := &Cluster{
		options: c.options, dir: c.path(name), joined: true, host: made,
		etcdPort: c.etcdPort, etcdPeerPort: c.etcdPeerPort, etcd: c.etcd,
		servingCA: c.servingCA, clientCA: c.clientCA, proxyCA: c.proxyCA,
	}
	joined.options.APIServerFlags = maps.Clone(c.options.APIServerFlags)
	if err := must.Catch(func() { joined.join(ctx, c) }); err != nil {
		return nil, errors.Join(fmt.Errorf("start a control plane on host %s: %w", name, err), joined.Stop())
	}
	return joined, nil
}

// join makes what it needs to start, which is the files of the first one, a port, and an
// identity for clients, and starts.
func (c *Cluster) join(ctx context.Context, first *Cluster) {
	c.copyFiles(first.dir)
	c.apiServerPort = must.Get(FreePort())
	c.admin = must.Get(c.writeIdentity(c.Kubeconfig(), "devcluster-admin", "system:masters"))
	must.Do(errors.Join(c.host.forward(c.etcdPort, c.host, nil), c.host.forward(c.apiServerPort, nil, c.host)))
	if c.options.BeforeAPIServer != nil {
		must.Do(c.options.BeforeAPIServer(c))
	}
	must.Do(c.StartAPIServer(ctx))
}

// copyFiles copies keys and certificates, which all hosts of a control plane share.
func (c *Cluster) copyFiles(from string) {
	must.Do(os.Mkdir(c.dir, 0o700))
	for _, pattern := range []string{"*.crt", "*.key"} {
		files := must.Get(filepath.Glob(filepath.Join(from, pattern)))
		for _, file := range files {
			content := must.Get(os.ReadFile(file))
			must.Do(os.WriteFile(c.path(filepath.Base(file)), content, 0o600))
		}
	}
}

// Authority is a certificate authority.
type Authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// NewAuthority makes one that no component trusts. It is valid for a year unless change says otherwise.
func NewAuthority(name string, changes ...func(*x509.Certificate)) (*Authority, error) {
	template := newTemplate(pkix.Name{CommonName: name})
	template.IsCA = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	for _, change := range changes {
		change(template)
	}
	cert, key, err := pki.Issue(template, nil, nil)
	return &Authority{cert, key}, err
}

// PEM is its certificate.
func (a *Authority) PEM() []byte { return pki.CertPEM(a.cert) }

// Key is its private key, PEM.
func (a *Authority) Key() ([]byte, error) { return pki.KeyPEM(a.key) }

// Client issues a certificate that kube-apiserver takes for the given user and groups; both results
// are PEM.
func (a *Authority) Client(user string, groups ...string) (cert, key []byte, err error) {
	template := newTemplate(pkix.Name{CommonName: user, Organization: groups})
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.issue(template)
}

// Server issues a serving certificate for names and addresses; both results are PEM.
func (a *Authority) Server(hosts ...string) (cert, key []byte, err error) {
	template := newTemplate(pkix.Name{CommonName: hosts[0]})
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return a.issue(template)
}

func (a *Authority) issue(template *x509.Certificate) (cert, key []byte, err error) {
	template.KeyUsage = x509.KeyUsageDigitalSignature
	issued, signer, err := pki.Issue(template, a.cert, a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("issue the certificate of %s: %w", template.Subject.CommonName, err)
	}
	key, err = pki.KeyPEM(signer)
	return pki.CertPEM(issued), key, err
}

// newTemplate is valid for a year: a cluster of make run may stay up for long.
func newTemplate(subject pkix.Name) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{Subject: subject, NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(1, 0, 0)}
}

// WriteSigningKey makes a new private key of the given type and writes it to
// path as PEM, readable by its owner only.
func WriteSigningKey(path string, keyType KeyType) error {
	var key crypto.Signer
	var err error
	if keyType == ECDSA {
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	} else {
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	}
	if err != nil {
		return err
	}
	data, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}

// Identity makes a client certificate for the given user and groups. It returns
// the path of a kubeconfig that holds it and the client configuration that the
// file describes. RBAC grants a new user nothing.
func (c *Cluster) Identity(user string, groups ...string) (kubeconfig string, config *rest.Config, err error) {
	kubeconfig = c.path(user + ".kubeconfig")
	config, err = c.writeIdentity(kubeconfig, user, groups...)
	return kubeconfig, config, err
}

func (c *Cluster) writeIdentity(path, user string, groups ...string) (*rest.Config, error) {
	cert, key, err := c.clientCA.Client(user, groups...)
	if err != nil {
		return nil, err
	}
	kubeconfig := clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"devcluster": {
			Server: "https://" + address(c.apiServerPort), CertificateAuthorityData: c.servingCA.PEM(),
		}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{user: {ClientCertificateData: cert, ClientKeyData: key}},
		Contexts:       map[string]*clientcmdapi.Context{"devcluster": {Cluster: "devcluster", AuthInfo: user}},
		CurrentContext: "devcluster",
	}
	if err := clientcmd.WriteToFile(kubeconfig, path); err != nil {
		return nil, fmt.Errorf("write the kubeconfig of %s: %w", user, err)
	}
	config, err := clientcmd.NewDefaultClientConfig(kubeconfig, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig of %s: %w", user, err)
	}
	// The server's priority and fairness governs; a limit here would be measured
	// together with whatever a test measures.
	config.QPS = -1
	return config, nil
}
