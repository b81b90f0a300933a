// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signing

import (
	"encoding/json"
	"errors"
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
// none about login. The JWKS is at JWKSPath below the issuer.
//
// The issuer must be an https URL with neither a query nor a fragment (OpenID Connect Discovery 1.0,
// section 3, as in kube-apiserver).
func MarshalDiscovery(issuer string, keys []PublicKey) ([]byte, error) {
	parsed, err := url.Parse(issuer)
	if err != nil || parsed.Scheme != "https" || parsed.Host == "" {
		return nil, errors.New("the issuer must be an https URL, such as https://example.com")
	}
	if strings.ContainsAny(issuer, "?#") {
		return nil, errors.New("the issuer must have neither a query nor a fragment")
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
	}{issuer, strings.TrimSuffix(issuer, "/") + JWKSPath, []string{"id_token"}, []string{"public"}, slices.Sorted(maps.Keys(algorithms))})
}
