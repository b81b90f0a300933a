// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/clock"

	"sa-controller-manager/internal/atomicfile"
	"sa-controller-manager/manifests"
)

// The files in Config.Dir: a kubeconfig, and certificate and key in one PEM file.
const (
	kubeconfigFile = "kubeconfig"
	pairFile       = "client.pem"
)

// watchInterval is how often Watch calls Ensure: permissions that were lost, as by a restore of etcd, are back within
// five minutes.
const watchInterval = 4 * time.Minute

// Config describes what Ensure makes, and from what.
type Config struct {
	CertDir  string // has ca.crt and, unless the CA is external, ca.key
	Dir      string // gets the kubeconfig and client.pem
	From     string // is the kubeconfig with the API server's address and CA
	Validity time.Duration

	ApplyPermissions bool
	// CreateSecrets has the permissions contain that to make token Secrets.
	CreateSecrets bool
	// OnlySigner has them be those of the subcommand signer.
	OnlySigner bool

	Clock clock.Clock
	// Say gets a line for every file, and for every warning.
	Say io.Writer
}

// NewConfig returns the paths of kubeadm.
func NewConfig() Config {
	return Config{
		CertDir:  "/etc/kubernetes/pki",
		Dir:      "/etc/kubernetes/sa-controller-manager",
		From:     "/etc/kubernetes/controller-manager.conf",
		Validity: 365 * 24 * time.Hour,
		Clock:    clock.RealClock{},
		Say:      io.Discard,
	}
}

func (c Config) path(name string) string { return filepath.Join(c.Dir, name) }

// Watch repeats Ensure until ctx ends, and prints what it says if that has changed. No error ends it: the main
// process decides by itself whether it can use the kubeconfig. The first start of a cluster waits for it, so it
// tries again after a second, and then ever less often.
func Watch(ctx context.Context, c Config) {
	retries := wait.Backoff{Duration: time.Second, Factor: 1.1, Steps: 100, Cap: watchInterval}
	out, last, failing := c.Say, "", retries
	for {
		var said bytes.Buffer
		c.Say = &said
		pause := watchInterval
		if err := Ensure(ctx, c); err != nil {
			fmt.Fprintf(&said, "Error: %v\n", err)
			pause = failing.Step()
		} else {
			failing = retries
		}
		if text := said.String(); text != last && ctx.Err() == nil {
			last = text
			fmt.Fprint(out, text)
		}
		select {
		case <-c.Clock.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// Ensure makes the identity, unless there is a valid one, and applies the permissions if
// Config.ApplyPermissions is set.
func Ensure(ctx context.Context, c Config) error {
	ca, err := openAuthority(c.CertDir, c.Clock.Now())
	if err != nil {
		return err
	}
	to, err := c.endpoint(ca)
	if err != nil {
		return err
	}
	if err := c.ensureFiles(ca, to); err != nil || !c.ApplyPermissions {
		return err
	}
	return c.applyPermissions(ctx, ca, to)
}

// endpoint returns the address of the API server and its CA.
func (c Config) endpoint(ca *authority) (*clientcmdapi.Cluster, error) {
	config, err := clientcmd.LoadFromFile(c.From)
	if err == nil {
		err = clientcmd.ResolveLocalPaths(config)
	}
	if err != nil {
		return nil, fmt.Errorf("read the API server's address from --from: %w", err)
	}
	from, _ := current(config)
	if from == nil || from.Server == "" {
		return nil, fmt.Errorf("%s names no API server in its current context", c.From)
	}
	to := &clientcmdapi.Cluster{Server: from.Server, CertificateAuthorityData: from.CertificateAuthorityData}
	if len(to.CertificateAuthorityData) == 0 && from.CertificateAuthority != "" {
		if to.CertificateAuthorityData, err = os.ReadFile(from.CertificateAuthority); err != nil {
			return nil, fmt.Errorf("read the CA that %s names: %w", c.From, err)
		}
	}
	if len(to.CertificateAuthorityData) == 0 {
		to.CertificateAuthorityData = ca.pem
	}
	return to, nil
}

// current returns the cluster and user of the current context, nil if there is none.
func current(config *clientcmdapi.Config) (*clientcmdapi.Cluster, *clientcmdapi.AuthInfo) {
	if now := config.Contexts[config.CurrentContext]; now != nil {
		return config.Clusters[now.Cluster], config.AuthInfos[now.AuthInfo]
	}
	return nil, nil
}

// ensureFiles writes what is missing or will not do. A kubeconfig whose user has another certificate than client.pem is
// the operator's.
func (c Config) ensureFiles(ca *authority, to *clientcmdapi.Cluster) error {
	var cluster *clientcmdapi.Cluster
	var user *clientcmdapi.AuthInfo
	config, err := clientcmd.LoadFromFile(c.path(kubeconfigFile))
	if err == nil {
		cluster, user = current(config)
	}
	// What we write is never damaged: this is the operator's. The error of its text is left out, which may quote a key.
	if there, _ := os.ReadFile(c.path(kubeconfigFile)); len(bytes.TrimSpace(there)) > 0 && user == nil {
		return fmt.Errorf("%s has no current context with a user; correct it, or remove it for one of ours", c.path(kubeconfigFile))
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the kubeconfig that is there: %w", err)
	}
	own := []string{pairFile, c.path(pairFile)}
	if user != nil && (!slices.Contains(own, user.ClientCertificate) || !slices.Contains(own, user.ClientKey)) {
		fmt.Fprintf(c.Say, "%s is left as it is: its user does not have client.pem.\n", c.path(kubeconfigFile))
		return nil
	}
	usable, why := c.certificate(ca)
	if why != "" {
		if err := c.renew(ca, why); err != nil && usable == nil {
			return err
		} else if err != nil {
			fmt.Fprintf(c.Say, "Warning: the client certificate ends on %s and could not be renewed: %v\n", day(usable.NotAfter), err)
		}
	}
	same := cluster != nil && user != nil && cluster.Server == to.Server &&
		bytes.Equal(bytes.TrimSpace(cluster.CertificateAuthorityData), bytes.TrimSpace(to.CertificateAuthorityData))
	if same {
		if why == "" {
			fmt.Fprintf(c.Say, "%s is left as it is: valid for %s until %s.\n",
				c.path(kubeconfigFile), manifests.User, day(usable.NotAfter))
		}
		return nil
	}
	rendered, err := render(to)
	if err != nil {
		return fmt.Errorf("render the kubeconfig: %w", err)
	}
	if err := c.write(kubeconfigFile, rendered); err != nil {
		return err
	}
	lost := ""
	if cluster != nil {
		lost = ", in place of " + cluster.Server
	}
	fmt.Fprintf(c.Say, "%s is written: for %s at %s%s.\n", c.path(kubeconfigFile), manifests.User, to.Server, lost)
	return nil
}

// certificate returns the one that kube-apiserver accepts for our user, nil if there is none, and why it needs a new one.
func (c Config) certificate(ca *authority) (usable *x509.Certificate, why string) {
	pair, err := tls.LoadX509KeyPair(c.path(pairFile), c.path(pairFile))
	if err != nil {
		return nil, err.Error() // it quotes no key
	}
	leaf := pair.Leaf
	if leaf.Subject.String() != "CN="+manifests.User {
		return nil, "it belongs to " + leaf.Subject.String()
	}
	client := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	_, err = leaf.Verify(x509.VerifyOptions{Roots: ca.roots, CurrentTime: ca.now, KeyUsages: client})
	if err != nil {
		return nil, err.Error()
	}
	if leaf.NotAfter.Sub(ca.now) <= leaf.NotAfter.Sub(leaf.NotBefore)/3 {
		why = "it expires on " + day(leaf.NotAfter)
	}
	return leaf, why
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// renew replaces client.pem.
func (c Config) renew(ca *authority, why string) error {
	made, err := ca.issue(pkix.Name{CommonName: manifests.User}, c.Validity)
	if errors.Is(err, ErrNoKey) {
		return fmt.Errorf("%w; write a kubeconfig of your own to %s, with a client certificate of that CA (CN=%s, no O) that is not in %s",
			err, c.path(kubeconfigFile), manifests.User, pairFile)
	} else if err != nil {
		return err
	}
	if err := c.write(pairFile, made); err != nil {
		return err
	}
	fmt.Fprintf(c.Say, "%s is written for %s. The one before: %s.\n", c.path(pairFile), manifests.User, why)
	return nil
}

// write lets no other user read the file: atomicfile keeps the mode of an existing file, and a hostPath
// volume creates a directory that all users can read.
func (c Config) write(name string, data []byte) error {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return err // it names the path
	}
	if err := os.Chmod(c.path(name), 0o600); err != nil && !os.IsNotExist(err) {
		return err // it names the path
	}
	return atomicfile.Write(c.path(name), data, 0o600)
}

// render names the file with certificate and key relative to the kubeconfig, so that the directory may
// be mounted anywhere. client-go reloads a certificate that is named, but not an embedded one.
func render(to *clientcmdapi.Cluster) ([]byte, error) {
	const clusterName, contextName = "kubernetes", "sa-controller-manager@kubernetes" // in the form of kubeadm
	return clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{clusterName: to},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{manifests.User: {ClientCertificate: pairFile, ClientKey: pairFile}},
		Contexts:       map[string]*clientcmdapi.Context{contextName: {Cluster: clusterName, AuthInfo: manifests.User}},
		CurrentContext: contextName,
	})
}
