// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"errors"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// PublishKeysFlag names the destinations.
const PublishKeysFlag = "publish-keys"

// Publishing has the flags that publish the keys for relying parties outside of the cluster.
type Publishing struct {
	// Destinations are the flags as given; see Directories.
	Destinations []string
}

// AddFlags binds the group to fs.
func (o *Publishing) AddFlags(fs *pflag.FlagSet) {
	fs.StringArrayVar(&o.Destinations, PublishKeysFlag, o.Destinations,
		"`Directory`, as file:///DIRECTORY, in which every replica keeps discovery document and JWKS of the first "+
			"--service-account-issuer, for relying parties: serve it, or copy it to where it is served. May be given several times.")
	SetOrigin(fs, ours, PublishKeysFlag)
}

// Validate returns every problem of the group.
func (o *Publishing) Validate() []error {
	var p Problems
	for i, destination := range o.Destinations {
		if _, err := parseDirectory(destination); err != nil {
			p.Add(PublishKeysFlag, destination, err.Error())
		}
		if slices.Contains(o.Destinations[:i], destination) {
			p.Add(PublishKeysFlag, destination, "must not be given twice")
		}
	}
	return p
}

// Directories returns the paths of the destinations.
func (o *Publishing) Directories() []string {
	var paths []string
	for _, destination := range o.Destinations {
		if path, err := parseDirectory(destination); err == nil { // Validate reports an error
			paths = append(paths, path)
		}
	}
	return paths
}

// parseDirectory reads file:///DIRECTORY.
func parseDirectory(text string) (string, error) {
	location, err := url.Parse(text)
	if err != nil {
		return "", errors.New("is not a URL") // the error would repeat it
	}
	path := filepath.Clean(location.Path)
	if *location != (url.URL{Scheme: "file", Path: location.Path, RawPath: location.RawPath}) || !filepath.IsAbs(path) {
		return "", errors.New("must be file:// and the absolute path of a directory")
	}
	return path, nil
}

// ValidateFor checks the keys to publish.
func (o *Publishing) ValidateFor(keys *Keys) []error {
	if len(o.Destinations) == 0 {
		return nil
	}
	var p Problems
	if keys.Store() == (KeyStore{}) {
		p.Add(PublishKeysFlag, o.Destinations[0],
			"needs keys to publish: give --service-account-key-ring or --service-account-private-key-file")
	}
	if !strings.HasPrefix(keys.Issuer(), "https://") {
		p.Add(PublishKeysFlag, o.Destinations[0],
			"needs --service-account-issuer with the https URL where relying parties look for the documents")
	}
	return p
}

// The flags of Published.
const (
	PublishedIssuerFlag = "published-issuer"
	PublishedCAFileFlag = "published-ca-file"
)

// Published has the flags of a command that say where relying parties read the keys.
type Published struct {
	Issuers []string
	// CAFile is a PEM bundle; empty means the CAs of the machine.
	CAFile string
}

// AddFlags binds the group to fs.
func (o *Published) AddFlags(fs *pflag.FlagSet) {
	fs.StringArrayVar(&o.Issuers, PublishedIssuerFlag, o.Issuers,
		"Issuer `URL` at which relying parties outside of the cluster read the keys: they must have the next key. "+
			"May be given several times. Without it, that of the cluster's issuer, if it answers.")
	fs.StringVar(&o.CAFile, PublishedCAFileFlag, o.CAFile,
		"PEM `file` with the CAs to trust at --published-issuer. Without it, those of the machine.")
}

// Validate returns every problem of the group.
func (o *Published) Validate() []error {
	var p Problems
	for i, issuer := range o.Issuers {
		if !strings.HasPrefix(issuer, "https://") || strings.ContainsAny(issuer, "?#@") || issuerProblem(issuer) != "" {
			p.Add(PublishedIssuerFlag, issuer, "must be an https URL without user, query and fragment")
		}
		if slices.Contains(o.Issuers[:i], issuer) {
			p.Add(PublishedIssuerFlag, issuer, "must not be given twice")
		}
	}
	return p
}
