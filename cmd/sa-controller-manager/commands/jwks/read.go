// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package jwks

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"sa-controller-manager/signing"
)

const (
	// maxDocument is the size in bytes beyond which no answer is read: some thousand keys.
	maxDocument = 1 << 20
	// maxRedirects is enough for a storage bucket behind a name of its own.
	maxRedirects = 3
)

// Read gets the JWKS at place, an https URL or the path of a file. roots are the CAs to trust for a
// URL; nil means those of the machine. The error names the place, without the query of a URL, which
// may give access to it.
func Read(ctx context.Context, place string, roots *x509.CertPool) ([]signing.PublishedKey, error) {
	document, name, err := load(ctx, place, roots)
	if err != nil {
		return nil, err
	}
	keys, err := signing.ParseJWKS(document)
	if err != nil {
		return nil, fmt.Errorf("read the keys of %s: %w", name, err)
	}
	return keys, nil
}

func load(ctx context.Context, place string, roots *x509.CertPool) (document []byte, name string, err error) {
	if !strings.Contains(place, "://") {
		if document, err = os.ReadFile(place); err != nil {
			err = fmt.Errorf("read keys: %w", err)
		}
		return document, place, err
	}
	address, err := url.Parse(place)
	if err == nil {
		err = permitted(address)
	}
	if err != nil {
		return nil, "", fmt.Errorf("get keys: %w", reason(err))
	}
	name = (&url.URL{Scheme: address.Scheme, Host: address.Host, Path: address.Path}).String()
	if document, err = fetch(ctx, place, roots); err != nil {
		return nil, "", fmt.Errorf("get the keys of %s: %w", name, reason(err))
	}
	return document, name, nil
}

// permitted keeps every request to https, and credentials out of it.
func permitted(address *url.URL) error {
	switch {
	case address.Scheme != "https" || address.Host == "":
		return errors.New("want an https URL, so that no other process can change the keys")
	case address.User != nil:
		return errors.New("want a URL without user and password: the keys of tokens are public")
	}
	return nil
}

func fetch(ctx context.Context, place string, roots *x509.CertPool) ([]byte, error) {
	transport := &http.Transport{
		Proxy:             http.ProxyFromEnvironment,
		TLSClientConfig:   &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		DisableKeepAlives: true,
	}
	client := &http.Client{Transport: transport, CheckRedirect: func(next *http.Request, before []*http.Request) error {
		if len(before) > maxRedirects {
			return fmt.Errorf("more than %d redirects", maxRedirects)
		}
		if err := permitted(next.URL); err != nil {
			return fmt.Errorf("redirected: %w", err)
		}
		// It tells the next server where we came from, with the query.
		next.Header.Del("Referer")
		return nil
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, place, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/jwk-set+json, application/json")
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the answer is %d %s, want 200", response.StatusCode, http.StatusText(response.StatusCode))
	}
	document, err := io.ReadAll(io.LimitReader(response.Body, maxDocument+1))
	if ctx.Err() != nil {
		// What a server sends that has seen us hang up is no answer.
		return nil, context.Cause(ctx)
	}
	if len(document) > maxDocument {
		return nil, fmt.Errorf("it is larger than %d bytes", maxDocument)
	}
	return document, err
}

// reason is an error without the URL, which net/http repeats with its query.
func reason(err error) error {
	if of, ok := errors.AsType[*url.Error](err); ok {
		return of.Err
	}
	return err
}

// OfCluster reads the keys that kube-apiserver publishes. get asks it for a path.
func OfCluster(ctx context.Context, get func(ctx context.Context, path string) ([]byte, error)) ([]signing.PublishedKey, error) {
	document, err := get(ctx, signing.JWKSPath)
	if err != nil {
		return nil, fmt.Errorf("read kube-apiserver's keys at %s: %w", signing.JWKSPath, err)
	}
	keys, err := signing.ParseJWKS(document)
	if err != nil {
		return nil, fmt.Errorf("read kube-apiserver's keys at %s: %w", signing.JWKSPath, err)
	}
	return keys, nil
}
