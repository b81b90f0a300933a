// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signing

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// Paths at which kube-apiserver serves the two documents. Relying parties append DiscoveryPath to
// the issuer (OpenID Connect Discovery 1.0, section 4). The document there has the URI of the JWKS.
const (
	DiscoveryPath = "/.well-known/openid-configuration"
	JWKSPath      = "/openid/v1/jwks"
)

// MarshalDiscovery returns the OpenID Connect discovery document of an issuer that signs with keys.
// Like that of kube-apiserver it has the members that a relying party needs to verify tokens, and
// none about login. An empty jwksURI means JWKSPath below the issuer.
//
// Both URLs must be https, and the issuer must have neither a query nor a fragment (OpenID Connect
// Discovery 1.0, section 3, as in kube-apiserver). The error says which URL is wrong and why.
func MarshalDiscovery(issuer, jwksURI string, keys []PublicKey) ([]byte, error) {
	if err := checkIssuer(issuer); err != nil {
		return nil, err
	}
	if jwksURI == "" {
		jwksURI = strings.TrimSuffix(issuer, "/") + JWKSPath
	}
	if err := checkHTTPS(jwksURI); err != nil {
		return nil, fmt.Errorf("the URI of the JWKS %w", err)
	}
	if len(keys) == 0 {
		return nil, errors.New("there are no keys")
	}
	algorithms := map[string]bool{}
	for _, key := range keys {
		algorithms[key.Algorithm] = true
	}
	return json.Marshal(struct {
		Issuer        string   `json:"issuer"`
		JWKSURI       string   `json:"jwks_uri"`
		ResponseTypes []string `json:"response_types_supported"`
		SubjectTypes  []string `json:"subject_types_supported"`
		Algorithms    []string `json:"id_token_signing_alg_values_supported"`
	}{issuer, jwksURI, []string{"id_token"}, []string{"public"}, slices.Sorted(maps.Keys(algorithms))})
}

func checkIssuer(issuer string) error {
	if err := checkHTTPS(issuer); err != nil {
		return fmt.Errorf("the issuer %w", err)
	}
	if strings.ContainsAny(issuer, "?#") {
		return errors.New("the issuer must have neither a query nor a fragment")
	}
	return nil
}

func checkHTTPS(text string) error {
	parsed, err := url.Parse(text)
	if err != nil || parsed.Scheme != "https" || parsed.Host == "" {
		return errors.New("must be an https URL, such as https://example.com")
	}
	return nil
}
