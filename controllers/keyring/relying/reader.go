// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package relying

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"sa-controller-manager/signing"
)

const (
	// maxDocument is the size in bytes beyond which no answer is read: some thousand keys.
	maxDocument = 1 << 20
	// maxRedirects is enough for a storage bucket behind a custom name.
	maxRedirects = 3
	// timeout of the two requests of Reader.Issuer.
	timeout = 10 * time.Second
)

// Reader reads published documents. It may be used concurrently.
type Reader struct {
	// Roots are the CAs to trust; nil means those of the machine.
	Roots *x509.CertPool
}

// Issuer reads the discovery document of an issuer and the JWKS that it leads to, within 10 s.
func (r *Reader) Issuer(ctx context.Context, issuer string) ([]signing.PublicKey, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	name, content, err := r.load(ctx, strings.TrimSuffix(issuer, "/")+signing.DiscoveryPath)
	if err != nil {
		return nil, err
	}
	var discovery struct {
		Issuer  string `json:"issuer"`
		JWKSURI string `json:"jwks_uri"`
	}
	if err := json.Unmarshal(content, &discovery); err != nil || discovery.Issuer == "" || discovery.JWKSURI == "" {
		return nil, fmt.Errorf("%s is no discovery document: want a JSON object with issuer and jwks_uri", name)
	}
	if discovery.Issuer != issuer {
		return nil, fmt.Errorf("%s is of another issuer, %.100q", name, discovery.Issuer)
	}
	keys, err := r.JWKS(ctx, discovery.JWKSURI)
	if err != nil {
		return nil, fmt.Errorf("the jwks_uri of %s: %w", name, err)
	}
	return keys, nil
}

// JWKS reads the JWKS at an https URL. The error names the URL without its query, which may give access to it.
func (r *Reader) JWKS(ctx context.Context, address string) ([]signing.PublicKey, error) {
	name, content, err := r.load(ctx, address)
	if err != nil {
		return nil, err
	}
	keys, err := signing.ParseJWKS(content)
	if err != nil {
		return nil, fmt.Errorf("read the keys of %s: %w", name, err)
	}
	return keys, nil
}

// load gets a document. The name is the URL without its query.
func (r *Reader) load(ctx context.Context, address string) (name string, content []byte, err error) {
	parsed, err := url.Parse(address)
	if err == nil {
		err = permitted(parsed)
	}
	if err != nil {
		return "", nil, fmt.Errorf("get keys: %w", reason(err))
	}
	name = (&url.URL{Scheme: parsed.Scheme, Host: parsed.Host, Path: parsed.Path}).String()
	if content, err = r.fetch(ctx, address); err != nil {
		return "", nil, fmt.Errorf("get the keys of %s: %w", name, reason(err))
	}
	return name, content, nil
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

func (r *Reader) fetch(ctx context.Context, address string) ([]byte, error) {
	transport := &http.Transport{
		Proxy:             http.ProxyFromEnvironment,
		TLSClientConfig:   &tls.Config{RootCAs: r.Roots, MinVersion: tls.VersionTLS12},
		DisableKeepAlives: true,
	}
	client := &http.Client{Transport: transport, CheckRedirect: func(next *http.Request, before []*http.Request) error {
		if len(before) > maxRedirects {
			return fmt.Errorf("more than %d redirects", maxRedirects)
		}
		if err := permitted(next.URL); err != nil {
			return fmt.Errorf("redirected: %w", err)
		}
		// It would show our URL, with its query, to the next server.
		next.Header.Del("Referer")
		return nil
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
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
	content, err := io.ReadAll(io.LimitReader(response.Body, maxDocument+1))
	if len(content) > maxDocument {
		return nil, fmt.Errorf("it is larger than %d bytes", maxDocument)
	}
	return content, err
}

// reason is an error without the URL, which net/http repeats with its query.
func reason(err error) error {
	if of, ok := errors.AsType[*url.Error](err); ok {
		return of.Err
	}
	return err
}
