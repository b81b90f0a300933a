// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signing_test

import (
	"bytes"
	"encoding/base64"
	"os"
	"strings"
	"testing"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
)

// goldenJWKS is a document of kube-apiserver's library, with the keys in it.
func goldenJWKS(tb testing.TB) ([]byte, []signing.PublicKey) {
	tb.Helper()
	document := testutil.Get(os.ReadFile("testdata/jwks/go-jose.json"))(tb)
	var keys []signing.PublicKey
	for _, key := range [][]byte{
		testkeys.RSA2048(), testkeys.RSA3072(), testkeys.RSA4096(), testkeys.P256(), testkeys.P256Other(), testkeys.P384(), testkeys.P521(),
	} {
		keys = append(keys, testkeys.Parse(key).Public())
	}
	return bytes.TrimSpace(document), keys
}

// TestJWKSIsUpstreams compares both directions, and with them the key IDs: another derivation would orphan
// every token that exists.
func TestJWKSIsUpstreams(t *testing.T) {
	t.Parallel()
	document, keys := goldenJWKS(t)
	encoded := testutil.Get(signing.MarshalJWKS(keys))(t)
	testutil.Check(t, "document", string(document), string(encoded))
	parsed, err := signing.ParseJWKS(document)
	testutil.Require(t, err == nil && len(parsed) == len(keys), "%d keys and error %v, want %d", len(parsed), err, len(keys))
	for i, key := range parsed {
		testutil.Expect(t, key.Equal(keys[i]) && key.Algorithm == keys[i].Algorithm && key.Problem == "", "key %d is %+v, want %+v", i, key,
			keys[i])
	}
}

func TestMarshalJWKSRefuses(t *testing.T) {
	t.Parallel()
	got, err := signing.MarshalJWKS(nil)
	testutil.Expect(t, err != nil, "no keys make %s", got)
	if got, err := signing.MarshalJWKS([]signing.PublicKey{{ID: "x", Key: "not a key"}}); err == nil {
		t.Errorf("a string makes %s", got)
	}
}

func TestParseJWKSSpoilsNoOtherKey(t *testing.T) {
	t.Parallel()
	const x, y = "ORV7d0L23RUf43DYOvGqJETe1IF9TRblBu2v5W3bojo", "L8uZavp01P2pq74NlsW3XNNcCePkT5m4Vr2iCv01p2E" // of testkeys.P256
	modulus := base64.RawURLEncoding.EncodeToString(bytes.Repeat([]byte{0xff}, 256))
	long := base64.RawURLEncoding.EncodeToString(bytes.Repeat([]byte{0xff}, 4096))
	const (
		noKey, noObject = "neither an RSA nor an EC key", "not a JSON object of strings"
		outOfRange      = "an RSA key with a modulus or exponent out of range"
		otherCurve      = "an EC key on a curve other than P-256, P-384 or P-521"
		noPoint         = "an EC key whose x and y are no point of its curve"
		tooShort        = "found an RSA key of 384 bits; accepted is RSA of at least 2048 bits, or EC on P-256, P-384 or P-521"
	)
	type want = signing.PublicKey
	readable := testkeys.Parse(testkeys.P256()).Public().Key
	cases := map[string]struct {
		reason, key string
		want        want
	}{
		"private half": {
			"a mistake that must be seen at once", `{"kty":"EC","crv":"P-256","kid":"a","x":"` + x + `","y":"` + y + `","d":"CANARY"}`,
			want{ID: "a", Key: readable, Problem: signing.ProblemPrivate},
		},
		"only ID": {"as some write in tests", `{"kid":"a"}`, want{ID: "a", Problem: noKey}},
		"Ed25519": {
			"others may sign with it", `{"kid":"a","kty":"OKP","crv":"Ed25519","x":"AA","alg":"EdDSA"}`,
			want{ID: "a", Algorithm: "EdDSA", Problem: noKey},
		},
		"symmetric":       {"every reader can sign", `{"kid":"a","kty":"oct","k":"AAAA"}`, want{ID: "a", Problem: signing.ProblemPrivate}},
		"no object":       {"RFC 7517, section 5", `"CANARY"`, want{Problem: noObject}},
		"number":          {"members are strings", `{"kid":7}`, want{Problem: noObject}},
		"no modulus":      {"", `{"kty":"RSA","e":"AQAB"}`, want{Problem: "its member n is missing or not base64url"}},
		"standard base64": {"another alphabet", `{"kty":"RSA","n":"++++","e":"AQAB"}`, want{Problem: "its member n is missing or not base64url"}},
		"no exponent":     {"", `{"kty":"RSA","n":"` + modulus + `"}`, want{Problem: "its member e is missing or not base64url"}},
		"short RSA":       {"too weak to sign with", `{"kty":"RSA","n":"` + modulus[:64] + `","e":"AQAB"}`, want{Problem: tooShort}},
		"long RSA":        {"costs more than it is worth", `{"kty":"RSA","n":"` + long + `","e":"AQAB"}`, want{Problem: outOfRange}},
		"even exponent":   {"no RSA key", `{"kty":"RSA","n":"` + modulus + `","e":"BA"}`, want{Problem: outOfRange}},
		"exponent 1":      {"signs nothing", `{"kty":"RSA","n":"` + modulus + `","e":"AQ"}`, want{Problem: outOfRange}},
		"huge exponent":   {"crypto/rsa takes 31 bits", `{"kty":"RSA","n":"` + modulus + `","e":"_____w"}`, want{Problem: outOfRange}},
		"P-224":           {"no JWS algorithm", `{"kty":"EC","crv":"P-224","x":"AA","y":"AA"}`, want{Problem: otherCurve}},
		"not on curve":    {"an invalid curve attack", `{"kty":"EC","crv":"P-256","x":"` + y + `","y":"` + x + `"}`, want{Problem: noPoint}},
		"short x": {
			"leading zeros belong to it", `{"kty":"EC","crv":"P-256","x":"` + x[:20] + `","y":"` + y + `"}`, want{Problem: noPoint},
		},
		"no y": {"", `{"kty":"EC","crv":"P-256","x":"` + x + `"}`, want{Problem: "its member y is missing or not base64url"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			good := `{"kty":"EC","crv":"P-256","kid":"good","x":"` + x + `","y":"` + y + `"}`
			keys, err := signing.ParseJWKS([]byte(`{"keys":[` + tc.key + `,` + good + `]}`))
			testutil.Require(t, err == nil && len(keys) == 2, "%s: %d keys, %v", tc.reason, len(keys), err)
			got := keys[0]
			same := got.Key == nil && tc.want.Key == nil || got.Equal(tc.want)
			if got.Key = tc.want.Key; !same || got != tc.want {
				t.Errorf("%s: got %+v, want %+v", tc.reason, keys[0], tc.want)
			}
			testutil.Expect(t, keys[1].ID == "good" && keys[1].Key != nil, "%s: the other key is spoiled: %q", tc.reason, keys[1].Problem)
		})
	}
}

func TestParseJWKSRefuses(t *testing.T) {
	t.Parallel()
	for name, document := range map[string]string{
		"nothing": "", "HTML": "<html>CANARY</html>", "list": `["CANARY"]`, "null": "null", "no keys": `{"issuer":"CANARY"}`,
		"no list": `{"keys":"CANARY"}`, "empty": `{"keys":[]}`, "null keys": `{"keys":null}`, "two": `{"keys":[{}]}{"keys":[{}]}`,
		"101 keys": `{"keys":[` + strings.Repeat("{},", 100) + `{"kid":"CANARY"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			keys, err := signing.ParseJWKS([]byte(document))
			testutil.Require(t, err != nil && len(keys) <= 0, "got %v", keys)
			testutil.Expect(t, !strings.Contains(err.Error(), "CANARY"), "error %q quotes the document", err)
		})
	}
}

func TestMarshalDiscovery(t *testing.T) {
	t.Parallel()
	_, keys := goldenJWKS(t)
	const rest = `"response_types_supported":["id_token"],"subject_types_supported":["public"],` +
		`"id_token_signing_alg_values_supported":["ES256","ES384","ES512","RS256"]}`
	cases := map[string]struct{ issuer, want, wantErr string }{
		"default URI": {
			issuer: "https://example.com", want: `{"issuer":"https://example.com","jwks_uri":"https://example.com/openid/v1/jwks",` + rest,
		},
		"final slash": {
			issuer: "https://example.com/", want: `{"issuer":"https://example.com/","jwks_uri":"https://example.com/openid/v1/jwks",` + rest,
		},
		"path":       {issuer: "https://a/b", want: `{"issuer":"https://a/b","jwks_uri":"https://a/b/openid/v1/jwks",` + rest},
		"no issuer":  {wantErr: "the issuer must be an https URL, such as https://example.com"},
		"plain HTTP": {issuer: "http://example.com", wantErr: "the issuer must be an https URL, such as https://example.com"},
		"no host":    {issuer: "https:example", wantErr: "the issuer must be an https URL, such as https://example.com"},
		"query":      {issuer: "https://example.com?a", wantErr: "the issuer must have neither a query nor a fragment"},
		"fragment":   {issuer: "https://example.com#a", wantErr: "the issuer must have neither a query nor a fragment"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := signing.MarshalDiscovery(tc.issuer, keys)
			text := ""
			if err != nil {
				text = err.Error()
			}
			testutil.Expect(t, string(got) == tc.want && text == tc.wantErr, "got %s, error %q; want %s, %q", got, text, tc.want, tc.wantErr)
		})
	}
	got, err := signing.MarshalDiscovery("https://a", nil)
	testutil.Expect(t, err != nil, "no keys make %s", got)
}

// FuzzParseJWKS: whatever is read as a key is one that kube-apiserver's documents can hold, and
// comes back the same.
func FuzzParseJWKS(f *testing.F) {
	document, _ := goldenJWKS(f)
	f.Add(document)
	f.Add([]byte(`{"keys":[{"kty":"EC","crv":"P-256","x":"AA","y":"AA"},{"kty":"oct","k":"AA"},7]}`))
	f.Add([]byte(`{"keys":[{"kty":"RSA","n":"AA","e":"AQAB","d":"AA"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		keys, err := signing.ParseJWKS(data)
		if err != nil {
			return
		}
		for _, key := range keys {
			testutil.Require(t, (key.Key == nil) != (key.Problem == ""), "key %v has the problem %q", key.Key, key.Problem)
			if key.Key == nil {
				continue
			}
			public, err := signing.NewPublicKey(key.Key)
			testutil.Require(t, err == nil, "accepted a key that no token can be verified with: %v", err)
			again := testutil.Get(signing.MarshalJWKS([]signing.PublicKey{public}))(t)
			back, err := signing.ParseJWKS(again)
			testutil.Require(t, err == nil && len(back) == 1 && back[0].ID == public.ID && back[0].Key != nil, "%s comes back as %v, %v", again,
				back, err)
		}
	})
}
