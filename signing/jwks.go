// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signing

import (
	"crypto/ecdsa"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
)

// jwk is a JSON Web Key (RFC 7517, with the members of RFC 7518, section 6). Its members have the
// order of go-jose, so for the same keys the document equals kube-apiserver's /openid/v1/jwks byte
// for byte.
type jwk struct {
	Use       string `json:"use,omitempty"`
	Type      string `json:"kty,omitempty"`
	ID        string `json:"kid,omitempty"`
	Curve     string `json:"crv,omitempty"`
	Algorithm string `json:"alg,omitempty"`
	X         string `json:"x,omitempty"`
	Y         string `json:"y,omitempty"`
	Modulus   string `json:"n,omitempty"`
	Exponent  string `json:"e,omitempty"`
}

const (
	typeRSA = "RSA"
	typeEC  = "EC"
)

// MarshalJWKS returns keys as a JSON Web Key Set in the form of kube-apiserver (k8s.io/kubernetes
// pkg/serviceaccount/openidmetadata.go): compact, each key with use "sig". A set without keys is an
// error, because a relying party would refuse every token with it.
func MarshalJWKS(keys []PublicKey) ([]byte, error) {
	if len(keys) == 0 {
		return nil, errors.New("encode a JWKS: there are no keys")
	}
	var document struct {
		Keys []jwk `json:"keys"`
	}
	for _, key := range keys {
		encoded, err := encodeJWK(key)
		if err != nil {
			return nil, fmt.Errorf("encode key %s as JWK: %w", key.ID, err)
		}
		document.Keys = append(document.Keys, encoded)
	}
	return json.Marshal(document)
}

func encodeJWK(key PublicKey) (jwk, error) {
	algorithm, err := AlgorithmFor(key.Key)
	if err != nil {
		return jwk{}, err
	}
	encoded := jwk{Use: "sig", ID: key.ID, Algorithm: algorithm}
	switch k := key.Key.(type) {
	case *rsa.PublicKey:
		encoded.Type = typeRSA
		encoded.Modulus = encodeInteger(k.N.Bytes())
		encoded.Exponent = encodeInteger(big.NewInt(int64(k.E)).Bytes())
	case *ecdsa.PublicKey:
		point, err := k.Bytes() // 4, then both coordinates in full length (RFC 7518, section 6.2.1.2)
		if err != nil {
			return jwk{}, err
		}
		half := len(point) / 2
		encoded.Type, encoded.Curve = typeEC, k.Curve.Params().Name
		encoded.X, encoded.Y = encodeInteger(point[1:1+half]), encodeInteger(point[1+half:])
	}
	return encoded, nil
}

func encodeInteger(bytes []byte) string { return base64.RawURLEncoding.EncodeToString(bytes) }
