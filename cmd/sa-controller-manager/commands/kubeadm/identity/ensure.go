// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"

	"sa-controller-manager/internal/atomicfile"
	"sa-controller-manager/manifests"
)

// Config says what Ensure is to make and of what.
type Config struct {
	CertDir string // has ca.crt and ca.key
	Out     string // the kubeconfig to write
	// From is the kubeconfig that tells the API server's address and CA, unless Server
	// does, for which ca.crt vouches then.
	From, Server string
	Validity     time.Duration
	Force        bool // overwrite what is not ours

	ApplyPermissions bool
	// Timeout bounds the wait for the API server, which only ApplyPermissions needs.
	Timeout time.Duration

	Clock clock.Clock
	// Say gets a line for everything that has been done, Warn one for what is wrong,
	// and Progress, unless nil, one for each try.
	Say, Warn io.Writer
	Progress  func(string)
}

// Ensure makes the kubeconfig, unless there is a good one, and applies the permissions
// if it is asked to.
func Ensure(ctx context.Context, c Config) error {
	now := c.Clock.Now()
	ca, err := openAuthority(c.CertDir, now)
	if err != nil {
		return err
	}
	to, err := c.endpoint(ca)
	if err != nil {
		return err
	}
	if err := c.ensureFile(ca, to, now); err != nil {
		return err
	}
	if !c.ApplyPermissions {
		return nil
	}
	return c.applyPermissions(ctx, ca, to)
}

func (c Config) ensureFile(ca *authority, to endpoint, now time.Time) error {
	existing, err := os.ReadFile(c.Out)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the kubeconfig that is there: %w", err)
	}
	found := judge(existing, manifests.User, to, ca.certificate, now)
	if found.foreign != "" {
		if !c.Force {
			return fmt.Errorf("%s is not overwritten: %s; --force overwrites it, --kubeconfig-out names another file", c.Out, found.foreign)
		}
		found.renew = found.foreign
	}
	if found.renew == "" {
		fmt.Fprintf(c.Say, "%s is left as it is: good for %s until %s.\n", c.Out, manifests.User, day(found.notAfter))
		return nil
	}
	if err := c.openKey(ca, to); err != nil {
		return err
	}
	pair, err := ca.issue(pkix.Name{CommonName: manifests.User}, now, c.Validity)
	if err != nil {
		return err
	}
	rendered, err := render(manifests.User, to, pair)
	if err != nil {
		return fmt.Errorf("render the kubeconfig: %w", err)
	}
	if err := c.write(rendered); err != nil {
		return err
	}
	fmt.Fprintf(c.Say, "%s is written, because %s: for %s at %s, valid until %s.\n",
		c.Out, found.renew, manifests.User, to.server, day(pair.notAfter))
	return nil
}

// write makes sure that nobody else can read it: atomicfile keeps the mode of a file
// that is there, and a hostPath volume makes one that everybody can read.
func (c Config) write(data []byte) error {
	if err := os.Chmod(c.Out, 0o600); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err // it names the path
	}
	return atomicfile.Write(c.Out, data, 0o600)
}

func (c Config) openKey(ca *authority, to endpoint) error {
	if ca.key != nil {
		return nil
	}
	worldReadable, err := ca.openKey()
	if errors.Is(err, ErrNoKey) {
		return fmt.Errorf("%w: %s", err, withExternalCA(c.Out, to.server, ca.certFile))
	} else if err != nil {
		return err
	}
	if worldReadable {
		fmt.Fprintf(c.Warn, "Warning: everybody on this machine can read %s, the key of the cluster's CA; chmod 600 it.\n", ca.keyFile)
	}
	return nil
}

// withExternalCA is the way to a kubeconfig where the CA's key is kept elsewhere.
func withExternalCA(out, server, caFile string) string {
	return `the control plane seems to have an external CA.
Make a key and a request here, and have the request signed there as a client certificate (extendedKeyUsage clientAuth):

  openssl ecparam -name prime256v1 -genkey -noout -out sa-controller-manager.key
  openssl req -new -key sa-controller-manager.key -subj "/CN=` + manifests.User + `" -out sa-controller-manager.csr

Then put certificate and key into the kubeconfig, and apply the permissions (kubectl apply -k manifests/permissions):

  kubectl config --kubeconfig=` + out + ` set-cluster ` + clusterName + ` --server=` + server + ` --certificate-authority=` + caFile + ` --embed-certs
  kubectl config --kubeconfig=` + out + ` set-credentials ` + manifests.User + ` --client-certificate=sa-controller-manager.crt --client-key=sa-controller-manager.key --embed-certs
  kubectl config --kubeconfig=` + out + ` set-context ` + contextName + ` --cluster=` + clusterName + ` --user=` + manifests.User + `
  kubectl config --kubeconfig=` + out + ` use-context ` + contextName
}

func (c Config) endpoint(ca *authority) (endpoint, error) {
	if c.Server != "" {
		return endpoint{server: c.Server, ca: ca.pem}, nil
	}
	config, err := clientcmd.LoadFromFile(c.From)
	if err != nil {
		return endpoint{}, fmt.Errorf("learn the API server's address (--from, or give --server): %w", err)
	}
	cluster, _ := inUse(config)
	if cluster == nil || cluster.Server == "" {
		return endpoint{}, fmt.Errorf("%s names no API server in its current context; give --server", c.From)
	}
	to := endpoint{server: cluster.Server, ca: cluster.CertificateAuthorityData}
	if len(to.ca) == 0 && cluster.CertificateAuthority != "" {
		if err := clientcmd.ResolveLocalPaths(config); err != nil {
			return endpoint{}, err
		}
		if to.ca, err = os.ReadFile(cluster.CertificateAuthority); err != nil {
			return endpoint{}, fmt.Errorf("read the CA that %s names: %w", c.From, err)
		}
	}
	if len(to.ca) == 0 {
		to.ca = ca.pem
	}
	return to, nil
}
