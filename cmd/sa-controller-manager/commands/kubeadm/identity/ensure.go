// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"bytes"
	"context"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"

	"sa-controller-manager/internal/atomicfile"
	"sa-controller-manager/manifests"
)

// The files in Config.Dir: a kubeconfig, and certificate and key in one PEM file.
const (
	kubeconfigFile = "kubeconfig"
	pairFile       = "client.pem"
)

const (
	// watchInterval is how often Watch checks the files.
	watchInterval = time.Minute
	// applyInterval is how often Watch applies the permissions: those that were lost, as by a restore of etcd,
	// are back within five minutes.
	applyInterval = 4 * time.Minute
	// retryInterval is short, because the first start of a cluster waits for it.
	retryInterval = time.Second
)

// Config describes what Ensure makes, and from what.
type Config struct {
	CertDir string // has ca.crt and, unless the CA is external, ca.key
	Dir     string // gets the kubeconfig and client.pem
	// From is the kubeconfig with the API server's address and CA. If Server is given, the CA is in
	// ca.crt.
	From, Server string
	Validity     time.Duration

	ApplyPermissions bool
	again            bool // they were applied before
	// CreateSecrets has the permissions contain that to make token Secrets.
	CreateSecrets bool

	Clock clock.Clock
	// Say gets a line for every change, and Warn one for every problem.
	Say, Warn io.Writer
}

// NewConfig returns the paths of kubeadm.
func NewConfig() Config {
	return Config{
		CertDir:  "/etc/kubernetes/pki",
		Dir:      "/etc/kubernetes/sa-controller-manager",
		From:     "/etc/kubernetes/controller-manager.conf",
		Validity: 365 * 24 * time.Hour,
		Clock:    clock.RealClock{},
		Say:      io.Discard, Warn: io.Discard,
	}
}

func (c Config) path(name string) string { return filepath.Join(c.Dir, name) }

// Watch repeats Ensure until ctx ends, and prints only what has changed. No error ends it: the main
// process decides by itself whether it can use the kubeconfig.
func Watch(ctx context.Context, c Config) {
	out, last, apply := c.Say, "", c.ApplyPermissions
	var applied time.Time
	for {
		var said bytes.Buffer
		c.Say, c.Warn = &said, &said
		pause := watchInterval
		c.ApplyPermissions, c.again = apply && c.Clock.Since(applied) >= applyInterval, !applied.IsZero()
		if err := Ensure(ctx, c); err != nil {
			fmt.Fprintf(&said, "Error: %v\n", err)
			if !c.again {
				pause = retryInterval
			}
		} else if c.ApplyPermissions {
			applied = c.Clock.Now()
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
	if err := c.ensureFiles(ca, to); err != nil {
		return err
	}
	if !c.ApplyPermissions {
		return nil
	}
	return c.applyPermissions(ctx, ca, to)
}

func (c Config) ensureFiles(ca *authority, to endpoint) error {
	found, err := c.read()
	if err != nil {
		return err
	}
	v := assess(found, manifests.User, to, ca.roots, c.Clock.Now())
	if v.notOurs != "" {
		fmt.Fprintf(c.Say, "%s is left as it is: %s.\n", c.path(kubeconfigFile), v.notOurs)
		return nil
	}
	if v.renew != "" {
		if err := c.renew(ca, v.renew); err != nil && !v.usable {
			return err
		} else if err != nil {
			fmt.Fprintf(c.Warn, "Warning: the client certificate ends on %s and could not be renewed: %v\n", day(v.notAfter), err)
		}
	}
	if v.rewrite == "" {
		if v.renew == "" {
			fmt.Fprintf(c.Say, "%s is left as it is: valid for %s until %s.\n", c.path(kubeconfigFile), manifests.User, day(v.notAfter))
		}
		return nil
	}
	rendered, err := render(manifests.User, to)
	if err != nil {
		return fmt.Errorf("render the kubeconfig: %w", err)
	}
	if err := c.write(kubeconfigFile, rendered); err != nil {
		return err
	}
	fmt.Fprintf(c.Say, "%s is written, because %s: for %s at %s.\n", c.path(kubeconfigFile), v.rewrite, manifests.User, to.server)
	return nil
}

// renew replaces client.pem.
func (c Config) renew(ca *authority, why string) error {
	if err := ca.openKey(c.Warn); errors.Is(err, ErrNoKey) {
		return fmt.Errorf("%w; write a kubeconfig of your own to %s, with a client certificate of that CA (CN=%s, no O) that is not in %s",
			err, c.path(kubeconfigFile), manifests.User, pairFile)
	} else if err != nil {
		return err
	}
	made, err := ca.issue(pkix.Name{CommonName: manifests.User}, c.Clock.Now(), c.Validity)
	if err != nil {
		return err
	}
	if err := c.write(pairFile, slices.Concat(made.cert, made.key)); err != nil {
		return err
	}
	chain, err := pair(made.cert, made.key)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.Say, "%s is written, because %s: for %s, valid until %s.\n", c.path(pairFile), why, manifests.User, day(chain[0].NotAfter))
	return nil
}

// read returns the current files. A damaged kubeconfig is no error: the directory is ours, and the
// kubeconfig is written again.
func (c Config) read() (state, error) {
	path := c.path(kubeconfigFile)
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return state{}, fmt.Errorf("read the kubeconfig that is there: %w", err)
	}
	var s state
	if len(bytes.TrimSpace(data)) == 0 {
		s.damaged = "there was none"
	} else if config, err := clientcmd.LoadFromFile(path); err != nil {
		s.damaged = "it was not a kubeconfig"
	} else if cluster, user := currentContext(config); cluster == nil || user == nil {
		s.damaged = "it had no current context with a cluster and a user"
	} else {
		own := []string{pairFile, c.path(pairFile)}
		s.cluster, s.foreign = cluster, !slices.Contains(own, user.ClientCertificate) || !slices.Contains(own, user.ClientKey)
	}
	s.pair, _ = os.ReadFile(c.path(pairFile)) // an unreadable one is written again
	return s, nil
}

// write lets no other user read the file: atomicfile keeps the mode of an existing file, and a hostPath
// volume creates a directory that all users can read.
func (c Config) write(name string, data []byte) error {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return err // it names the path
	}
	if err := os.Chmod(c.path(name), 0o600); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err // it names the path
	}
	return atomicfile.Write(c.path(name), data, 0o600)
}

func (c Config) endpoint(ca *authority) (endpoint, error) {
	if c.Server != "" {
		return endpoint{server: c.Server, ca: ca.pem}, nil
	}
	config, err := clientcmd.LoadFromFile(c.From)
	if err != nil {
		return endpoint{}, fmt.Errorf("read the API server's address from --from (or give --server): %w", err)
	}
	cluster, _ := currentContext(config)
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
