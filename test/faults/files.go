// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	"sa-controller-manager/test/devcluster"
)

// Files of a replica. They are links through contentLink, as in a mounted Secret, so that
// one rename changes them all at once.
const (
	keyFile     = "service-account.key"
	caFile      = "root-ca.crt"
	certFile    = "serving.crt"
	certKeyFile = "serving.key"

	contentLink = "..data"
)

// writeFiles gives the replica copies of the cluster's key and CA, and a certificate of
// its own.
func (r *Replica) writeFiles(cluster *devcluster.Cluster) error {
	certificate, key, err := newCertificate()
	if err != nil {
		return err
	}
	content := contents{certFile: certificate, certKeyFile: key}
	for name, from := range map[string]string{keyFile: cluster.SigningKeyFile(), caFile: cluster.CAFile()} {
		if content[name], err = os.ReadFile(from); err != nil {
			return fmt.Errorf("copy a file: %w", err)
		}
	}
	return r.renew(content)
}

// contents is what files hold, by name.
type contents map[string][]byte

// with is the same but for some of them.
func (c contents) with(some contents) contents {
	all := maps.Clone(c)
	maps.Copy(all, some)
	return all
}

// contents is what all files hold behind their links.
func (r *Replica) contents() (contents, error) {
	all := contents{}
	for _, name := range []string{keyFile, caFile, certFile, certKeyFile} {
		content, err := os.ReadFile(filepath.Join(r.path(contentLink), name))
		if err != nil {
			return nil, fmt.Errorf("read a file: %w", err)
		}
		all[name] = content
	}
	return all, nil
}

// renew has all files be those of a new directory, in one step, and removes the former one,
// as the kubelet does. What was put in the place of a link gives way to it.
func (r *Replica) renew(all contents) error {
	former, err := os.Readlink(r.path(contentLink))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("find the directory of files: %w", err)
	}
	r.renewed++
	dir := fmt.Sprintf("..%d", r.renewed)
	if err := r.writeContent(dir, all); err != nil {
		return err
	}
	if err := r.point(dir); err != nil {
		return err
	}
	for name := range all {
		if err := r.restore(name); err != nil {
			return err
		}
	}
	if former == "" {
		return nil
	}
	if err := os.RemoveAll(r.path(former)); err != nil {
		return fmt.Errorf("remove the former files: %w", err)
	}
	return nil
}

func (r *Replica) writeContent(dir string, content contents) error {
	if err := os.MkdirAll(r.path(dir), 0o700); err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	for name, bytes := range content {
		if err := os.WriteFile(filepath.Join(r.path(dir), name), bytes, 0o600); err != nil {
			return fmt.Errorf("write a file: %w", err)
		}
	}
	return nil
}

// point has all files be those of another directory, in one step.
func (r *Replica) point(dir string) error {
	link := r.path(contentLink)
	if err := os.Symlink(dir, link+".new"); err != nil {
		return fmt.Errorf("link a directory: %w", err)
	}
	if err := os.Rename(link+".new", link); err != nil {
		return fmt.Errorf("link a directory: %w", err)
	}
	return nil
}

// replace puts another file in the place of a link, and restore puts the link back.
func (r *Replica) replace(name string, content []byte, mode os.FileMode) error {
	path := r.path(name)
	if err := os.WriteFile(path+".new", content, mode); err != nil {
		return fmt.Errorf("write a file: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("replace a file: %w", err)
	}
	return nil
}

func (r *Replica) restore(name string) error {
	path := r.path(name)
	if err := os.Symlink(filepath.Join(contentLink, name), path+".new"); err != nil {
		return fmt.Errorf("link a file: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("link a file: %w", err)
	}
	return nil
}

// newCertificate makes a certificate that nobody trusts.
func newCertificate() (certificate, key []byte, err error) {
	authority, err := devcluster.NewAuthority("faults")
	if err != nil {
		return nil, nil, fmt.Errorf("make a certificate: %w", err)
	}
	return authority.Server("localhost")
}
