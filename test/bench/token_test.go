// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"strings"
	"testing"

	"gopkg.in/go-jose/go-jose.v2"
	"gopkg.in/go-jose/go-jose.v2/jwt"
	"k8s.io/client-go/util/keyutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
	"sa-controller-manager/tokens"
)

var account = tokens.Account{Namespace: "demo", Name: "builder", UID: "0e0a3f5c-6d3c-4a0a-9a5f-6f6f1f1f2f2f"}

const secretName = "builder-token-x7k2p"

// BenchmarkLegacyToken compares a whole legacy token with the signature alone, made by the standard library over the same
// bytes, and with go-jose, in the version that kube-controller-manager signs with. What the first two differ by is what
// claims, JSON and base64 cost.
func BenchmarkLegacyToken(b *testing.B) {
	for name, key := range map[string]struct {
		pem       []byte
		algorithm jose.SignatureAlgorithm
	}{
		"RSA2048": {testkeys.RSA2048(), jose.RS256},
		"P256":    {testkeys.P256(), jose.ES256},
	} {
		b.Run(name, func(b *testing.B) {
			private := parse(b, key.pem)
			issuer := tokens.NewIssuer(private, tokens.CompatClaims)
			b.Run("ours", func(b *testing.B) { issue(b, issuer) })
			b.Run("bare", func(b *testing.B) { sign(b, key.pem, issuer) })
			b.Run("go-jose", func(b *testing.B) { issueByJOSE(b, key.pem, key.algorithm, private.ID()) })
		})
	}
}

func issue(b *testing.B, issuer *tokens.Issuer) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := issuer.Legacy(b.Context(), account, secretName); err != nil {
			b.Fatal(err)
		}
	}
}

// sign is the floor: a signature over a text that is there already.
func sign(b *testing.B, pem []byte, issuer *tokens.Issuer) {
	token := legacy(b, issuer)
	key, text := raw(b, pem), []byte(token[:strings.LastIndex(token, ".")])
	b.ReportAllocs()
	for b.Loop() {
		digest := sha256.Sum256(text)
		if _, err := key.Sign(rand.Reader, digest[:], crypto.SHA256); err != nil {
			b.Fatal(err)
		}
	}
}

// issueByJOSE has go-jose encode the same claims and sign them, with a signer that is
// made once.
func issueByJOSE(b *testing.B, pem []byte, algorithm jose.SignatureAlgorithm, keyID string) {
	signer, err := jose.NewSigner(jose.SigningKey{
		Algorithm: algorithm,
		Key:       jose.JSONWebKey{Algorithm: string(algorithm), Key: raw(b, pem), KeyID: keyID, Use: "sig"},
	}, nil)
	if err != nil {
		b.Fatal(err)
	}
	typed := legacyClaims{
		"kubernetes/serviceaccount", "system:serviceaccount:" + account.Namespace + ":" + account.Name,
		account.Namespace, secretName, account.Name, account.UID,
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := jwt.Signed(signer).Claims(typed).CompactSerialize(); err != nil {
			b.Fatal(err)
		}
	}
}

// legacyClaims are those of a legacy token, because a struct is encoded faster than a map
// and go-jose shall not be slow for our sake.
type legacyClaims struct {
	Issuer     string `json:"iss"`
	Subject    string `json:"sub"`
	Namespace  string `json:"kubernetes.io/serviceaccount/namespace"`
	SecretName string `json:"kubernetes.io/serviceaccount/secret.name"`
	Account    string `json:"kubernetes.io/serviceaccount/service-account.name"`
	AccountUID string `json:"kubernetes.io/serviceaccount/service-account.uid"`
}

func legacy(b *testing.B, issuer *tokens.Issuer) string {
	b.Helper()
	token, err := issuer.Legacy(b.Context(), account, secretName)
	if err != nil {
		b.Fatal(err)
	}
	return token
}

func parse(b *testing.B, pem []byte) *signing.PrivateKey {
	b.Helper()
	key, err := signing.ParsePrivateKey(pem)
	if err != nil {
		b.Fatal(err)
	}
	return key
}

func raw(b *testing.B, pem []byte) crypto.Signer {
	b.Helper()
	key, err := keyutil.ParsePrivateKeyPEM(pem)
	if err != nil {
		b.Fatal(err)
	}
	return key.(crypto.Signer)
}
