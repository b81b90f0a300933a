// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package publish writes the keys of a ring where relying parties outside of the cluster read them:
// the OpenID Connect discovery document and the JWKS of the issuer, with the content and the paths of
// kube-apiserver's own, in a directory or in an S3 bucket.
//
// A pass reads what a destination holds, decides, and writes what differs: the JWKS first, because
// the discovery document leads to it. It never replaces the documents of another issuer unless it is
// told to, nor those of a newer generation of the ring. A write has the version that was read as its precondition.
package publish

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"sa-controller-manager/signing"
)

// ErrConflict is the error of a write whose precondition does not hold: another writer was first.
// The next pass reads again.
var ErrConflict = errors.New("another writer was first")

// maxDocument is the size in bytes beyond which no stored document is read.
const maxDocument = 1 << 20

// Object is a document at a destination.
type Object struct {
	Body []byte
	// Stamp is the ring that it was made of, zero if the destination keeps no metadata.
	Stamp Stamp
	// Version is the precondition of a write. Only its destination knows its meaning.
	Version string
}

// Stamp identifies a ring. The generation is 0 for a store without generations.
type Stamp struct {
	Generation int64
	Hash       string
}

// StampOf returns the stamp of a ring.
func StampOf(ring *signing.Ring) Stamp {
	return Stamp{Generation: ring.Generation(), Hash: ring.Hash()}
}

// Headers are the HTTP headers with which a document is to be served.
type Headers struct {
	ContentType, CacheControl string
}

// Destination holds documents by path. Its methods may be called concurrently.
type Destination interface {
	// Get returns nil if there is no document.
	Get(ctx context.Context, path string) (*Object, error)
	// Put writes a document in place of old, or of none if old is nil. It returns ErrConflict if the
	// destination can tell that the document has changed since.
	Put(ctx context.Context, path string, old *Object, body []byte, stamp Stamp, headers Headers) error
	// Verify returns an error if the destination ignores preconditions. It changes no document.
	Verify(ctx context.Context) error
	// PerHost reports whether each host has a destination of its own.
	PerHost() bool
	// String names it without credentials.
	String() string
}

// Publisher publishes for one issuer.
type Publisher struct {
	// Issuer is an https URL.
	Issuer string
	// MaxAge is how long relying parties may keep a document.
	MaxAge time.Duration
	// TakeOver has the documents of another issuer replaced.
	TakeOver bool
}

// Result of a pass.
type Result struct {
	// Wrote has the paths of the documents that were replaced.
	Wrote []string
	// Foreign has the IDs of keys that were published and that the ring never had. Their owner could
	// sign tokens that relying parties accepted.
	Foreign []string
}

// Pass writes the keys of ring to the destination. The result is also valid if there is an error.
func (p *Publisher) Pass(ctx context.Context, to Destination, ring *signing.Ring) (Result, error) {
	var result Result
	want, err := p.documents(ring)
	if err != nil {
		return result, err
	}
	if err := to.Verify(ctx); err != nil {
		return result, err
	}
	jwks, err := to.Get(ctx, signing.JWKSPath)
	if err != nil {
		return result, err
	}
	discovery, err := to.Get(ctx, signing.DiscoveryPath)
	if err != nil {
		return result, err
	}
	if err := p.mayReplace(ring, jwks, discovery); err != nil {
		return result, err
	}
	result.Foreign = foreign(ring, jwks)
	old := map[string]*Object{signing.JWKSPath: jwks, signing.DiscoveryPath: discovery}
	for _, document := range want {
		if document.is(old[document.path]) {
			continue
		}
		if err := to.Put(ctx, document.path, old[document.path], document.body, StampOf(ring), p.headers(document)); err != nil {
			return result, err
		}
		result.Wrote = append(result.Wrote, document.path)
	}
	return result, nil
}

// document is a wanted document of the destination.
type document struct {
	path, contentType string
	body              []byte
}

// documents returns the JWKS and the discovery document, in the order in which they are written.
// Their media types are kube-apiserver's (pkg/routes/openidmetadata.go).
func (p *Publisher) documents(ring *signing.Ring) ([]document, error) {
	keys := ring.KeySet().All()
	jwks, err := signing.MarshalJWKS(keys)
	if err != nil {
		return nil, err
	}
	discovery, err := signing.MarshalDiscovery(p.Issuer, "", keys)
	if err != nil {
		return nil, err
	}
	return []document{
		{path: signing.JWKSPath, contentType: "application/jwk-set+json", body: jwks},
		{path: signing.DiscoveryPath, contentType: "application/json", body: discovery},
	}, nil
}

func (d document) is(stored *Object) bool {
	return stored != nil && bytes.Equal(stored.Body, d.body)
}

func (p *Publisher) headers(d document) Headers {
	return Headers{ContentType: d.contentType, CacheControl: fmt.Sprintf("public, max-age=%d", int(p.MaxAge.Seconds()))}
}

// below joins the path of a document to the prefix of a destination.
func below(prefix, document string) string {
	return strings.TrimPrefix(path.Join("/", prefix, document), "/")
}
