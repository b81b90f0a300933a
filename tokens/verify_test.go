// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokens_test

import (
	"crypto"
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

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
	"sa-controller-manager/tokens"
)

// forge makes a token with any header and any signature over it.
func forge(tb testing.TB, header map[string]any, payload string, sign func(text string) []byte) string {
	tb.Helper()
	encoded := testutil.Get(json.Marshal(header))(tb)
	text := segment(string(encoded)) + "." + segment(payload)
	return text + "." + base64.RawURLEncoding.EncodeToString(sign(text))
}

// with signs with a golang-jwt method and the standard library's key, so that a forger's choices
// are all open.
func with(tb testing.TB, method jwt.SigningMethod, key any) func(string) []byte {
	return func(text string) []byte {
		tb.Helper()
		return testutil.Get(method.Sign(text, key))(tb)
	}
}

// rawKey returns a test key as the standard library has it.
func rawKey(tb testing.TB, data []byte) crypto.Signer {
	tb.Helper()
	block, _ := pem.Decode(data)
	if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return key
	}
	return testutil.Get(x509.ParseECPrivateKey(block.Bytes))(tb)
}

// attack is a token that must not verify with a ring of RSA2048 (active), P256 and P384, with the error it
// gets.
type attack struct {
	token string
	want  error
}

func attacks(tb testing.TB) map[string]attack {
	tb.Helper()
	rsaKey, ecKey := testkeys.Parse(testkeys.RSA2048()).ID(), testkeys.Parse(testkeys.P256()).ID()
	rawRSA, rawEC, stranger := rawKey(tb, testkeys.RSA2048()), rawKey(tb, testkeys.P256()), rawKey(tb, testkeys.RSA2048Other())
	publicDER := testutil.Get(x509.MarshalPKIXPublicKey(rawRSA.Public()))(tb)
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: publicDER})
	hmacWith := func(secret []byte) func(string) []byte { return with(tb, jwt.SigningMethodHS256, secret) }
	zeros := func(n int) func(string) []byte { return func(string) []byte { return make([]byte, n) } }
	byRSA, byStranger := with(tb, jwt.SigningMethodRS256, rawRSA), with(tb, jwt.SigningMethodRS256, stranger)
	byPSS, byRS512 := with(tb, jwt.SigningMethodPS256, rawRSA), with(tb, jwt.SigningMethodRS512, rawRSA)
	members := func(header map[string]any, sign func(string) []byte) string {
		return forge(tb, header, legacyPayload, sign)
	}
	named := func(alg, kid string, sign func(string) []byte) string {
		return members(map[string]any{"alg": alg, "kid": kid}, sign)
	}
	more := func(kid, member string, value any) string {
		return members(map[string]any{"alg": "RS256", "kid": kid, member: value}, byStranger)
	}
	good := named("RS256", rsaKey, byRSA)
	segments := strings.Split(good, ".")
	body, signature := segments[0]+"."+segments[1]+".", "."+segments[2]
	altered := segment(strings.Replace(legacyPayload, "demo", "prod", 1))
	alteredHeader := segment(fmt.Sprintf(`{"alg":"RS256","kid":%q} `, rsaKey))
	boundPayload := `{"iss":"https://CANARY","sub":"system:serviceaccount:demo:builder"}`
	rsaHeader := map[string]any{"alg": "RS256", "kid": rsaKey}
	return map[string]attack{
		"alg none":                  {named("none", rsaKey, zeros(0)), tokens.ErrBadSignature},
		"alg None":                  {named("None", rsaKey, zeros(0)), tokens.ErrBadSignature},
		"alg none, no key ID":       {members(map[string]any{"alg": "none"}, zeros(0)), tokens.ErrBadSignature},
		"no alg":                    {members(map[string]any{"kid": rsaKey}, byRSA), tokens.ErrBadSignature},
		"unknown alg":               {named("XX999", rsaKey, byRSA), tokens.ErrBadSignature},
		"HS256 with the public DER": {named("HS256", rsaKey, hmacWith(publicDER)), tokens.ErrBadSignature},
		"HS256 with the public PEM": {named("HS256", rsaKey, hmacWith(publicPEM)), tokens.ErrBadSignature},
		"HS256 with nothing":        {named("HS256", ecKey, hmacWith([]byte{})), tokens.ErrBadSignature},
		"PS256 by the key itself":   {named("PS256", rsaKey, byPSS), tokens.ErrBadSignature},
		"RS512 by the key itself":   {named("RS512", rsaKey, byRS512), tokens.ErrBadSignature},
		"ES256 said of an RSA key":  {named("ES256", rsaKey, with(tb, jwt.SigningMethodES256, rawEC)), tokens.ErrBadSignature},
		"RS256 said of an EC key":   {named("RS256", ecKey, byRSA), tokens.ErrBadSignature},
		"ES384 said of a P-256 key": {named("ES384", ecKey, zeros(96)), tokens.ErrBadSignature},
		"another key's signature":   {named("RS256", rsaKey, byStranger), tokens.ErrBadSignature},
		"a stranger, no key ID":     {members(map[string]any{"alg": "RS256"}, byStranger), tokens.ErrBadSignature},
		"a stranger, empty key ID":  {named("RS256", "", byStranger), tokens.ErrBadSignature},
		"embedded jwk":              {more(rsaKey, "jwk", jwk(tb, stranger)), tokens.ErrBadSignature},
		"embedded jwk, no key ID":   {more("", "jwk", jwk(tb, stranger)), tokens.ErrBadSignature},
		"jku":                       {more("stranger", "jku", "https://127.0.0.1:1/jwks"), tokens.ErrUnknownKey},
		"x5u":                       {more("stranger", "x5u", "https://127.0.0.1:1/cert"), tokens.ErrUnknownKey},
		"x5c":                       {more(rsaKey, "x5c", []string{"MIIC"}), tokens.ErrBadSignature},
		"key ID of a path":          {named("HS256", "../../../../dev/null", hmacWith([]byte{})), tokens.ErrUnknownKey},
		"key ID with NUL":           {named("RS256", rsaKey+"\x00", byRSA), tokens.ErrUnknownKey},
		"key ID in lower case":      {named("RS256", strings.ToLower(rsaKey), byRSA), tokens.ErrUnknownKey},
		"unknown key ID":            {named("RS256", "CANARY", byRSA), tokens.ErrUnknownKey},
		"key ID under another case": {members(map[string]any{"alg": "RS256", "KID": rsaKey}, byStranger), tokens.ErrBadSignature},
		"altered payload":           {segments[0] + "." + altered + signature, tokens.ErrBadSignature},
		"altered header":            {alteredHeader + "." + segments[1] + signature, tokens.ErrBadSignature},
		"no signature":              {body, tokens.ErrBadSignature},
		"short signature":           {body + "AAAA", tokens.ErrBadSignature},
		"all-zero EC signature":     {named("ES256", ecKey, zeros(64)), tokens.ErrBadSignature},
		"ASN.1 EC signature":        {named("ES256", ecKey, asn1Signature(tb, rawEC)), tokens.ErrBadSignature},
		"crit":                      {more(rsaKey, "crit", []string{"exp"}), tokens.ErrMalformed}, // TestInspectRefuses has all of these
		"bound token":               {forge(tb, rsaHeader, boundPayload, byRSA), tokens.ErrNotLegacy},
		"no issuer":                 {forge(tb, rsaHeader, `{}`, byRSA), tokens.ErrNotLegacy},
	}
}

// jwk is the public key of an RSA key as a header can carry it.
func jwk(tb testing.TB, key crypto.Signer) map[string]any {
	tb.Helper()
	public, ok := key.Public().(*rsa.PublicKey)
	testutil.Require(tb, ok, "not an RSA key")
	modulus := public.N.Bytes()
	return map[string]any{"kty": "RSA", "alg": "RS256", "n": base64.RawURLEncoding.EncodeToString(modulus), "e": "AQAB"}
}

// asn1Signature makes a good ECDSA signature in the form that JWS does not use.
func asn1Signature(tb testing.TB, key crypto.Signer) func(string) []byte {
	return func(text string) []byte {
		tb.Helper()
		digest := sha256.Sum256([]byte(text))
		return testutil.Get(key.Sign(rand.Reader, digest[:], crypto.SHA256))(tb)
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
			testutil.Require(t, errors.Is(err, attack.want), "error is %v, want %v", err, attack.want)
			testutil.Expect(t, got == (tokens.Token{}), "claims of a token that nobody vouches for were returned: %v", got)
			testutil.Expect(t, !strings.Contains(err.Error(), "CANARY"), "error %q quotes the token", err)
		})
	}
}

// TestVerifyLegacy has what TestLegacyMatchesUpstream has not.
func TestVerifyLegacy(t *testing.T) {
	t.Parallel()
	byRSA := with(t, jwt.SigningMethodRS256, rawKey(t, testkeys.RSA2048()))
	byP384 := with(t, jwt.SigningMethodES384, rawKey(t, testkeys.P384()))
	ec := testutil.Get(tokens.NewIssuer(testkeys.Parse(testkeys.P256()), tokens.CompatClaims).Legacy(t.Context(), account, secretName))(t)
	id := testkeys.Parse(testkeys.RSA2048()).ID()
	expired := fmt.Sprintf(`%s,"exp":%d,"nbf":%d}`, strings.TrimSuffix(legacyPayload, "}"),
		time.Now().Add(-time.Hour).Unix(), time.Now().Add(time.Hour).Unix())
	cases := map[string]struct{ reason, token, want string }{
		"verify-only key": {"not the active one", ec, testkeys.Parse(testkeys.P256()).ID()},
		"no key ID":       {"every key is tried", forge(t, map[string]any{"alg": "RS256"}, legacyPayload, byRSA), ""},
		"no key ID, EC":   {"every key is tried", forge(t, map[string]any{"alg": "ES384"}, legacyPayload, byP384), ""},
		"typ": {
			"an external signer writes it", forge(t, map[string]any{"alg": "RS256", "kid": id, "typ": "JWT"}, legacyPayload, byRSA), id,
		},
		"expired": {
			"the apiserver does not check it in a legacy token", forge(t, map[string]any{"alg": "RS256", "kid": id}, expired, byRSA), id,
		},
	}
	keys := ring()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := testutil.Get(tokens.VerifyLegacy(tc.token, keys))(t)
			testutil.Check(t, tc.reason+": key ID", tc.want, got.KeyID)
			testutil.Check(t, tc.reason, "", got.Mismatch(account, secretName))
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
					_, err := tokens.VerifyLegacy(forge(t, header, legacyPayload, sign), source)
					testutil.Expect(t, errors.Is(err, tokens.ErrBadSignature), "alg %s: error is %v", alg, err)
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
		_, err := tokens.VerifyLegacy(token, source)
		testutil.Expect(t, errors.Is(err, tokens.ErrUnknownKey), "%s: error is %v", name, err)
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

func addTokens(f *testing.F) {
	f.Helper()
	for _, token := range sortedTokens(f) {
		f.Add(token)
	}
	for _, kind := range []string{"legacy", "bound"} {
		for _, v := range vectors(f, kind) {
			f.Add(v.Token)
		}
	}
	f.Add(unsigned(`{"alg":"RS256"}`, legacyPayload))
	f.Add(unsigned(`{"alg":"RS256","kid":"a","kid":"b"}`, `{"\u0073ub":1}`))
	f.Add(strings.Repeat(".", 100))
	f.Add("..")
}

// FuzzVerifyLegacy looks for a forgery. Nobody can make a signature by chance, so a token that
// verifies must bear the header and payload of one that the keys signed: one of the golden tokens,
// or one that the seeds were cut from.
func FuzzVerifyLegacy(f *testing.F) {
	addTokens(f)
	signed := map[string]bool{}
	for _, v := range vectors(f, "legacy") {
		signed[v.Token[:strings.LastIndex(v.Token, ".")]] = true
	}
	for _, key := range []*signing.PrivateKey{testkeys.Parse(testkeys.RSA2048()), testkeys.Parse(testkeys.P256())} {
		token := testutil.Get(tokens.NewIssuer(key, tokens.CompatClaims).Legacy(f.Context(), account, secretName))(f)
		f.Add(token)
		signed[token[:strings.LastIndex(token, ".")]] = true
	}
	keys := ring()
	f.Fuzz(func(t *testing.T, token string) {
		got, err := tokens.VerifyLegacy(token, keys)
		if err == nil {
			testutil.Require(t, signed[token[:strings.LastIndex(token, ".")]], "a forged token verifies")
			return
		}
		known := false
		for _, sentinel := range []error{tokens.ErrMalformed, tokens.ErrUnknownKey, tokens.ErrBadSignature, tokens.ErrNotLegacy} {
			known = known || errors.Is(err, sentinel)
		}
		testutil.Require(t, known && len(err.Error()) <= 120 && got == (tokens.Token{}), "VerifyLegacy returned %v, %v", got, err)
	})
}
