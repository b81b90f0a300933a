// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"sa-controller-manager/signing/publish"
)

// PublishKeysFlag names the destinations.
const PublishKeysFlag = "publish-keys"

// Publishing has the flags that publish the keys for relying parties outside of the cluster.
type Publishing struct {
	// Destinations are read by publish.Parse.
	Destinations []string
	// MaxAge is how long relying parties may keep what they have read.
	MaxAge time.Duration
	// Published says where relying parties read the keys, for rotation by policy.
	Published Published
}

// NewPublishing returns the defaults of the group.
func NewPublishing() Publishing { return Publishing{MaxAge: 5 * time.Minute} }

// AddFlags binds the group to fs.
func (o *Publishing) AddFlags(fs *pflag.FlagSet) {
	fs.StringArrayVar(&o.Destinations, PublishKeysFlag, o.Destinations,
		"`Destination` where relying parties outside of the cluster read the keys of the first --service-account-issuer, as OpenID Connect discovery document and JWKS: "+
			"file:///DIRECTORY, written by every replica, or s3://BUCKET/PREFIX?endpoint=HOST:PORT&region=NAME&ca-file=FILE, written by the leader "+
			"with the usual AWS credentials. May be given several times.")
	fs.DurationVar(&o.MaxAge, "publish-max-age", o.MaxAge,
		"How long relying parties may keep what they have read from an S3 bucket of --publish-keys: the max-age of its Cache-Control header, in whole seconds.")
	SetOrigin(fs, ours, PublishKeysFlag, "publish-max-age")
	o.Published.AddFlags(fs)
}

// Validate returns every problem of the group.
func (o *Publishing) Validate() []error {
	var p Problems
	for i, destination := range o.Destinations {
		if _, err := publish.Parse(destination); err != nil {
			p.Add(PublishKeysFlag, destination, err.Error())
		}
		if slices.Contains(o.Destinations[:i], destination) {
			p.Add(PublishKeysFlag, destination, "must not be given twice")
		}
	}
	if o.MaxAge < 0 || o.MaxAge%time.Second != 0 {
		p.Add("publish-max-age", o.MaxAge, "must be a whole number of seconds, not negative")
	}
	return append(p, o.Published.Validate()...)
}

// ValidateFor checks the keys that are to be published.
func (o *Publishing) ValidateFor(keys *Keys) []error {
	if len(o.Destinations) == 0 {
		return nil
	}
	var p Problems
	if keys.Store() == (KeyStore{}) {
		p.Add(PublishKeysFlag, o.Destinations[0], "needs keys to publish: give --service-account-key-ring or --service-account-private-key-file")
	}
	if !strings.HasPrefix(keys.Issuer(), "https://") {
		p.Add(PublishKeysFlag, o.Destinations[0], "needs --service-account-issuer with the https URL where relying parties look for the documents")
	}
	return p
}
