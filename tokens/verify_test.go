// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokens_test

import (
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-cmp/cmp"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
	"sa-controller-manager/tokens"
)

// forge makes a token with any header and any signature over it.
func forge(tb testing.TB, header map[string]any, payload string, sign func(text string) []byte) string {
	tb.Helper()
	encoded, err := json.Marshal(header)
	testutil.Must(tb, err)
	text := segment(string(encoded)) + "." + segment(payload)
	return text + "." + base64.RawURLEncoding.EncodeToString(sign(text))
}

// with signs with a golang-jwt method and the standard library's key, so that a forger's choices
// are all open.
func with(tb testing.TB, method jwt.SigningMethod, key any) func(string) []byte {
	return func(text string) []byte {
		tb.Helper()
		signature, err := method.Sign(text, key)
		testutil.Must(tb, err)
		return signature
	}
}

// rawKey returns a test key as the standard library has it.
func rawKey(tb testing.TB, data []byte) crypto.Signer {
	tb.Helper()
	block, _ := pem.Decode(data)
	if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return key
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	testutil.Must(tb, err)
	return key
}

// attacks are tokens that must not verify with a ring of RSA2048 (active), P256 and P384, each with
// the error it gets.
func attacks(tb testing.TB) map[string]struct {
	token string
	want  error
} {
	tb.Helper()
	rsaKey, ecKey := testkeys.Parse(testkeys.RSA2048()), testkeys.Parse(testkeys.P256())
	rawRSA, rawEC, stranger := rawKey(tb, testkeys.RSA2048()), rawKey(tb, testkeys.P256()), rawKey(tb, testkeys.RSA2048Other())
	publicDER, err := x509.MarshalPKIXPublicKey(rawRSA.Public())
	testutil.Must(tb, err)
	hmacWith := func(secret []byte) func(string) []byte {
		return func(text string) []byte {
			mac := hmac.New(sha256.New, secret)
			mac.Write([]byte(text))
			return mac.Sum(nil)
		}
	}
	none := func(string) []byte { return nil }
	header := func(alg, kid string) map[string]any {
		return map[string]any{"alg": alg, "kid": kid}
	}
	byRSA := with(tb, jwt.SigningMethodRS256, rawRSA)
	byStranger := with(tb, jwt.SigningMethodRS256, stranger)
	good := forge(tb, header("RS256", rsaKey.ID()), legacyPayload, byRSA)
	body, signature := good[:strings.LastIndex(good, ".")], good[strings.LastIndex(good, "."):]
	altered := strings.Replace(legacyPayload, "demo", "prod", 1)
	return map[string]struct {
		token string
		want  error
	}{
		"alg none":                  {forge(tb, header("none", rsaKey.ID()), legacyPayload, none), tokens.ErrBadSignature},
		"alg None":                  {forge(tb, header("None", rsaKey.ID()), legacyPayload, none), tokens.ErrBadSignature},
		"alg none, no key ID":       {forge(tb, map[string]any{"alg": "none"}, legacyPayload, none), tokens.ErrBadSignature},
		"no alg":                    {forge(tb, map[string]any{"kid": rsaKey.ID()}, legacyPayload, byRSA), tokens.ErrBadSignature},
		"unknown alg":               {forge(tb, header("XX999", rsaKey.ID()), legacyPayload, byRSA), tokens.ErrBadSignature},
		"HS256 with the public DER": {forge(tb, header("HS256", rsaKey.ID()), legacyPayload, hmacWith(publicDER)), tokens.ErrBadSignature},
		"HS256 with the public PEM": {
			forge(tb, header("HS256", rsaKey.ID()), legacyPayload, hmacWith(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: publicDER}))),
			tokens.ErrBadSignature,
		},
		"HS256 with nothing": {forge(tb, header("HS256", ecKey.ID()), legacyPayload, hmacWith(nil)), tokens.ErrBadSignature},
		"PS256 by the key itself": {
			forge(tb, header("PS256", rsaKey.ID()), legacyPayload, with(tb, jwt.SigningMethodPS256, rawRSA)), tokens.ErrBadSignature,
		},
		"RS512 by the key itself": {
			forge(tb, header("RS512", rsaKey.ID()), legacyPayload, with(tb, jwt.SigningMethodRS512, rawRSA)), tokens.ErrBadSignature,
		},
		"ES256 said of an RSA key": {
			forge(tb, header("ES256", rsaKey.ID()), legacyPayload, with(tb, jwt.SigningMethodES256, rawEC)), tokens.ErrBadSignature,
		},
		"RS256 said of an EC key": {forge(tb, header("RS256", ecKey.ID()), legacyPayload, byRSA), tokens.ErrBadSignature},
		"ES384 said of a P-256 key": {
			forge(tb, header("ES384", ecKey.ID()), legacyPayload, func(string) []byte { return make([]byte, 96) }), tokens.ErrBadSignature,
		},
		"another key's signature":  {forge(tb, header("RS256", rsaKey.ID()), legacyPayload, byStranger), tokens.ErrBadSignature},
		"a stranger, no key ID":    {forge(tb, map[string]any{"alg": "RS256"}, legacyPayload, byStranger), tokens.ErrBadSignature},
		"a stranger, empty key ID": {forge(tb, header("RS256", ""), legacyPayload, byStranger), tokens.ErrBadSignature},
		"embedded jwk": {
			forge(tb, map[string]any{"alg": "RS256", "kid": rsaKey.ID(), "jwk": jwk(tb, stranger)}, legacyPayload, byStranger),
			tokens.ErrBadSignature,
		},
		"embedded jwk, no key ID": {
			forge(tb, map[string]any{"alg": "RS256", "jwk": jwk(tb, stranger)}, legacyPayload, byStranger), tokens.ErrBadSignature,
		},
		"jku": {
			forge(tb, map[string]any{"alg": "RS256", "kid": "stranger", "jku": "https://127.0.0.1:1/jwks"}, legacyPayload, byStranger),
			tokens.ErrUnknownKey,
		},
		"x5u": {
			forge(tb, map[string]any{"alg": "RS256", "kid": "stranger", "x5u": "https://127.0.0.1:1/cert"}, legacyPayload, byStranger),
			tokens.ErrUnknownKey,
		},
		"x5c": {
			forge(tb, map[string]any{"alg": "RS256", "kid": rsaKey.ID(), "x5c": []string{"MIIC"}}, legacyPayload, byStranger),
			tokens.ErrBadSignature,
		},
		"key ID of a path":     {forge(tb, header("HS256", "../../../../dev/null"), legacyPayload, hmacWith(nil)), tokens.ErrUnknownKey},
		"key ID with NUL":      {forge(tb, header("RS256", rsaKey.ID()+"\x00"), legacyPayload, byRSA), tokens.ErrUnknownKey},
		"key ID in lower case": {forge(tb, header("RS256", strings.ToLower(rsaKey.ID())), legacyPayload, byRSA), tokens.ErrUnknownKey},
		"unknown key ID":       {forge(tb, header("RS256", "CANARY"), legacyPayload, byRSA), tokens.ErrUnknownKey},
		"key ID under another case": {
			forge(tb, map[string]any{"alg": "RS256", "KID": rsaKey.ID()}, legacyPayload, byStranger), tokens.ErrBadSignature,
		},
		"altered payload": {strings.Split(good, ".")[0] + "." + segment(altered) + signature, tokens.ErrBadSignature},
		"altered header": {
			segment(fmt.Sprintf(`{"alg":"RS256","kid":%q} `, rsaKey.ID())) + strings.TrimPrefix(good, strings.Split(good, ".")[0]),
			tokens.ErrBadSignature,
		},
		"no signature":    {body + ".", tokens.ErrBadSignature},
		"short signature": {body + ".AAAA", tokens.ErrBadSignature},
		"all-zero EC signature": {
			forge(tb, header("ES256", ecKey.ID()), legacyPayload, func(string) []byte { return make([]byte, 64) }), tokens.ErrBadSignature,
		},
		"ASN.1 EC signature": {forge(tb, header("ES256", ecKey.ID()), legacyPayload, asn1Signature(tb, rawEC)), tokens.ErrBadSignature},
		"crit": {
			forge(tb, map[string]any{"alg": "RS256", "kid": rsaKey.ID(), "crit": []string{"exp"}}, legacyPayload, byRSA), tokens.ErrMalformed,
		},
		"b64": {
			forge(tb, map[string]any{"alg": "RS256", "kid": rsaKey.ID(), "b64": false}, legacyPayload, byRSA), tokens.ErrMalformed,
		},
		"number as key ID":          {forge(tb, map[string]any{"alg": "RS256", "kid": 1}, legacyPayload, byRSA), tokens.ErrMalformed},
		"final line feed":           {good + "\n", tokens.ErrMalformed},
		"another token glued to it": {good + good, tokens.ErrMalformed},
		"bound token": {
			forge(tb, header("RS256", rsaKey.ID()), `{"iss":"https://CANARY","sub":"system:serviceaccount:demo:builder"}`, byRSA),
			tokens.ErrNotLegacy,
		},
		"no issuer": {forge(tb, header("RS256", rsaKey.ID()), `{}`, byRSA), tokens.ErrNotLegacy},
		"text":      {"CANARY", tokens.ErrMalformed},
		"empty":     {"", tokens.ErrMalformed},
	}
}

// jwk is the public key of an RSA key as a header can carry it.
func jwk(tb testing.TB, key crypto.Signer) map[string]any {
	tb.Helper()
	public, ok := key.Public().(*rsa.PublicKey)
	if !ok {
		tb.Fatal("not an RSA key")
	}
	modulus := public.N.Bytes()
	return map[string]any{"kty": "RSA", "alg": "RS256", "n": base64.RawURLEncoding.EncodeToString(modulus), "e": "AQAB"}
}

// asn1Signature makes a good ECDSA signature in the form that JWS does not use.
func asn1Signature(tb testing.TB, key crypto.Signer) func(string) []byte {
	return func(text string) []byte {
		tb.Helper()
		digest := sha256.Sum256([]byte(text))
		signature, err := key.Sign(rand.Reader, digest[:], crypto.SHA256)
		testutil.Must(tb, err)
		return signature
	}
}

func ring() *signing.Keyring {
	return signing.NewKeyring(signing.KeyFileRing(testkeys.Parse(testkeys.RSA2048())),
		testkeys.Parse(testkeys.P256()).Public(), testkeys.Parse(testkeys.P384()).Public())
}

func TestVerifyLegacyRefuses(t *testing.T) {
	t.Parallel()
	keys := ring()
	for name, attack := range attacks(t) {
		t.Run(name, func(t *testing.T) {
			got, err := tokens.VerifyLegacy(attack.token, keys)
			if !errors.Is(err, attack.want) {
				t.Fatalf("error is %v, want %v", err, attack.want)
			}
			if got != (tokens.Token{}) {
				t.Errorf("claims of a token that nobody vouches for were returned: %v", got)
			}
			if strings.Contains(err.Error(), "CANARY") {
				t.Errorf("error %q quotes the token", err)
			}
		})
	}
}

func TestVerifyLegacy(t *testing.T) {
	t.Parallel()
	rawRSA := rawKey(t, testkeys.RSA2048())
	issue := func(key []byte) string {
		token, err := tokens.NewIssuer(testkeys.Parse(key), tokens.CompatClaims).Legacy(t.Context(), account, secretName)
		testutil.Must(t, err)
		return token
	}
	id := testkeys.Parse(testkeys.RSA2048()).ID()
	expired := fmt.Sprintf(`%s,"exp":%d,"nbf":%d}`, strings.TrimSuffix(legacyPayload, "}"),
		time.Now().Add(-time.Hour).Unix(), time.Now().Add(time.Hour).Unix())
	cases := map[string]struct {
		reason string
		token  string
		key    []byte
	}{
		"active key":      {"RS256", issue(testkeys.RSA2048()), testkeys.RSA2048()},
		"verify-only key": {"ES256", issue(testkeys.P256()), testkeys.P256()},
		"another curve":   {"ES384", issue(testkeys.P384()), testkeys.P384()},
		"no key ID": {"every key is tried", forge(t, map[string]any{"alg": "RS256"}, legacyPayload,
			with(t, jwt.SigningMethodRS256, rawRSA)), nil},
		"no key ID, EC": {"every key is tried", forge(t, map[string]any{"alg": "ES384"}, legacyPayload,
			with(t, jwt.SigningMethodES384, rawKey(t, testkeys.P384()))), nil},
		"typ": {"an external signer writes it", forge(t, map[string]any{"alg": "RS256", "kid": id, "typ": "JWT"}, legacyPayload,
			with(t, jwt.SigningMethodRS256, rawRSA)), testkeys.RSA2048()},
		"expired": {"the apiserver does not check it in a legacy token", forge(t, map[string]any{"alg": "RS256", "kid": id}, expired,
			with(t, jwt.SigningMethodRS256, rawRSA)), testkeys.RSA2048()},
	}
	keys := ring()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := tokens.VerifyLegacy(tc.token, keys)
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			want := ""
			if tc.key != nil {
				want = testkeys.Parse(tc.key).ID()
			}
			if diff := cmp.Diff(want, got.KeyID); diff != "" {
				t.Errorf("%s: key ID -want +got:\n%s", tc.reason, diff)
			}
			if mismatch := got.Mismatch(account, secretName); mismatch != "" {
				t.Errorf("%s: %s", tc.reason, mismatch)
			}
		})
	}
}

// TestVerifyLegacyTrustsKeysNotLabels gives a key another name and algorithm than its own.
func TestVerifyLegacyTrustsKeysNotLabels(t *testing.T) {
	t.Parallel()
	secret := []byte("a secret")
	for name, key := range map[string]signing.PublicKey{
		"symmetric key":      {ID: "k", Algorithm: "HS256", Key: secret},
		"wrong algorithm":    {ID: "k", Algorithm: "HS256", Key: rawKey(t, testkeys.RSA2048()).Public()},
		"weak key":           {ID: "k", Algorithm: "RS256", Key: rawKey(t, testkeys.RSA1024()).Public()},
		"none, no key":       {ID: "k", Algorithm: "none"},
		"none, magic value":  {ID: "k", Algorithm: "none", Key: jwt.UnsafeAllowNoneSignatureType},
		"none, named method": {ID: "k", Algorithm: "none", Key: jwt.SigningMethodNone},
	} {
		t.Run(name, func(t *testing.T) {
			source := fixedKeys{signing.NewKeySet(key)}
			for alg, sign := range map[string]func(string) []byte{
				"HS256": with(t, jwt.SigningMethodHS256, secret),
				"none":  func(string) []byte { return nil },
				"RS256": with(t, jwt.SigningMethodRS256, rawKey(t, testkeys.RSA1024())),
			} {
				for _, header := range []map[string]any{{"alg": alg, "kid": "k"}, {"alg": alg}} {
					if _, err := tokens.VerifyLegacy(forge(t, header, legacyPayload, sign), source); !errors.Is(err, tokens.ErrBadSignature) {
						t.Errorf("alg %s: error is %v", alg, err)
					}
				}
			}
		})
	}
}

type fixedKeys struct{ set *signing.KeySet }

func (k fixedKeys) Keys() *signing.KeySet { return k.set }

func TestVerifyLegacyWithoutKeys(t *testing.T) {
	t.Parallel()
	token := forge(t, map[string]any{"alg": "none"}, legacyPayload, func(string) []byte { return nil })
	for name, source := range map[string]signing.KeySource{
		"empty ring": signing.NewKeyring(signing.KeyFileRing(nil)),
		"nil set":    fixedKeys{},
	} {
		if _, err := tokens.VerifyLegacy(token, source); !errors.Is(err, tokens.ErrUnknownKey) {
			t.Errorf("%s: error is %v", name, err)
		}
	}
}

// sortedTokens gives fuzz seeds a fixed order.
func sortedTokens(tb testing.TB) []string {
	all := attacks(tb)
	var seeds []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		seeds = append(seeds, all[name].token)
	}
	return seeds
}
