// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signing_test

import (
	"bytes"
	"encoding/base64"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
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
		"symmetric":  {"every reader can sign", `{"kid":"a","kty":"oct","k":"AAAA"}`, want{ID: "a", Problem: signing.ProblemPrivate}},
		"no object":  {"RFC 7517, section 5", `"CANARY"`, want{Problem: noObject}},
		"number":     {"members are strings", `{"kid":7}`, want{Problem: noObject}},
		"no modulus": {"", `{"kty":"RSA","e":"AQAB"}`, want{Problem: "its member n is missing or not base64url"}},
		"standard base64": {
			"another alphabet", `{"kty":"RSA","n":"++++","e":"AQAB"}`, want{Problem: "its member n is missing or not base64url"},
		},
		"no exponent":   {"", `{"kty":"RSA","n":"` + modulus + `"}`, want{Problem: "its member e is missing or not base64url"}},
		"short RSA":     {"too weak to sign with", `{"kty":"RSA","n":"` + modulus[:64] + `","e":"AQAB"}`, want{Problem: tooShort}},
		"long RSA":      {"costs more than it is worth", `{"kty":"RSA","n":"` + long + `","e":"AQAB"}`, want{Problem: outOfRange}},
		"even exponent": {"no RSA key", `{"kty":"RSA","n":"` + modulus + `","e":"BA"}`, want{Problem: outOfRange}},
		"exponent 1":    {"signs nothing", `{"kty":"RSA","n":"` + modulus + `","e":"AQ"}`, want{Problem: outOfRange}},
		"huge exponent": {"crypto/rsa takes 31 bits", `{"kty":"RSA","n":"` + modulus + `","e":"_____w"}`, want{Problem: outOfRange}},
		"P-224":         {"no JWS algorithm", `{"kty":"EC","crv":"P-224","x":"AA","y":"AA"}`, want{Problem: otherCurve}},
		"not on curve": {
			"an invalid curve attack", `{"kty":"EC","crv":"P-256","x":"` + y + `","y":"` + x + `"}`, want{Problem: noPoint},
		},
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
			testutil.Require(t, err != nil && len(keys) == 0, "got %v", keys)
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
			issuer: "https://example.com/", want: `{"issuer":"https://example.com/","jwks_uri":"https://example.com/openid/v1/jwks",` +
				rest,
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
			testutil.Expect(t, string(got) == tc.want && text == tc.wantErr, "got %s, error %q; want %s, %q", got, text, tc.want,
				tc.wantErr)
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
			testutil.Require(t, err == nil && len(back) == 1 && back[0].ID == public.ID && back[0].Key != nil, "%s comes back as %v, %v",
				again,
				back, err)
		}
	})
}

// file reads one of the files that openssl made.
func file(tb testing.TB, name string) []byte {
	tb.Helper()
	return testutil.Get(os.ReadFile(filepath.Join("testdata", "pem", name+".pem")))(tb)
}

// block encodes one PEM block.
func block(label string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: label, Bytes: der})
}

func TestParsePrivateKey(t *testing.T) {
	t.Parallel()
	rsaID, ecID := testkeys.Parse(testkeys.RSA2048()).ID(), testkeys.Parse(testkeys.P256()).ID()
	garbage := block("RSA PRIVATE KEY", []byte("garbage"))
	cases := map[string]struct {
		reason string
		data   []byte
		want   string // key ID
	}{
		"PKCS#1":             {"openssl genrsa", testkeys.RSA2048(), rsaID},
		"PKCS#8 RSA":         {"openssl genpkey", file(t, "rsa-pkcs8"), rsaID},
		"SEC 1":              {"openssl ecparam -noout", testkeys.P256(), ecID},
		"PKCS#8 EC":          {"openssl genpkey", file(t, "ec-pkcs8"), ecID},
		"EC PARAMETERS":      {"openssl ecparam writes a block before the key", file(t, "ec-parameters-then-sec1"), ecID},
		"CRLF":               {"edited on Windows", bytes.ReplaceAll(testkeys.RSA2048(), []byte("\n"), []byte("\r\n")), rsaID},
		"no final line feed": {"cut by an editor", bytes.TrimRight(testkeys.P256(), "\n"), ecID},
		"text around": {
			"openssl -text", slices.Concat([]byte("Private-Key: (2048 bit)\n"), testkeys.RSA2048(), []byte("end\n")), rsaID,
		},
		"byte order mark":   {"it is leading text", slices.Concat([]byte("\xef\xbb\xbf\n"), testkeys.P256()), ecID},
		"two keys":          {"the first wins", slices.Concat(testkeys.P256(), testkeys.RSA2048()), ecID},
		"certificate first": {"a bundle", slices.Concat(file(t, "rsa-certificate"), testkeys.RSA2048()), rsaID},
		"public key first":  {"both halves in a file", slices.Concat(file(t, "rsa-pkix"), testkeys.RSA2048()), rsaID},
		"garbage first":     {"the first that can be read", slices.Concat(garbage, testkeys.P256()), ecID},
		"encrypted first":   {"the first that can be read", slices.Concat(file(t, "encrypted-pkcs1"), testkeys.P256()), ecID},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			key, err := signing.ParsePrivateKey(tc.data)
			testutil.Require(t, err == nil, "%s: %v", tc.reason, err)
			testutil.Expect(t, key.ID() == tc.want, "%s: key ID is %s, want %s", tc.reason, key.ID(), tc.want)
			alone := key.PEM()
			blocks := bytes.Count(alone, []byte("BEGIN"))
			testutil.Expect(t, testkeys.Parse(alone).ID() == tc.want && bytes.HasPrefix(alone, []byte("-----")) && blocks == 1,
				"%s: the rest of the file was not left behind", tc.reason)
		})
	}
}

func TestParsePrivateKeyRefuses(t *testing.T) {
	t.Parallel()
	pkcs8 := der(t, file(t, "rsa-pkcs8"))
	sec1 := der(t, testkeys.P256())
	pkcs1 := der(t, testkeys.RSA2048())
	truncated := testkeys.RSA2048()
	truncated = truncated[:len(truncated)/2]
	cases := map[string]struct {
		reason string
		data   []byte
		found  string
	}{
		"empty":           {"0-byte file", nil, "nothing, the file is empty"},
		"white space":     {"as good as empty", []byte(" \r\n\t\n"), "nothing, the file is empty"},
		"no PEM":          {"DER in place of PEM", pkcs1, "no PEM block"},
		"text":            {"a wrong file", []byte("hello"), "no PEM block"},
		"cut off":         {"half written", truncated, "a damaged or cut off PEM block"},
		"byte order mark": {"of an editor", slices.Concat([]byte("\xef\xbb\xbf"), block("PRIVATE KEY", pkcs8)), "a byte order mark"},
		"byte order mark, two keys": {
			"the second would sign", slices.Concat([]byte("\xef\xbb\xbf"), block("PRIVATE KEY", pkcs8), testkeys.RSA2048()),
			"a byte order mark",
		},
		"UTF-16": {"of an editor", []byte("\xff\xfe-\x00"), "a byte order mark"},
		"OpenSSH public key": {
			"id_rsa.pub", []byte("ssh-rsa AAAAB3NzaC1yc2E me@here"), "a public key in OpenSSH form, which ssh-keygen -e",
		},
		"certificate":         {"the usual mix-up", file(t, "rsa-certificate"), "a certificate"},
		"certificate request": {"another mix-up", file(t, "request"), "a certificate request"},
		"public key":          {"sa.pub for sa.key", file(t, "rsa-pkix"), "a public key"},
		"PKCS#1 public key":   {"sa.pub for sa.key", file(t, "rsa-pkcs1-public"), "a public key"},
		"encrypted PKCS#1":    {"Proc-Type header", file(t, "encrypted-pkcs1"), "an encrypted private key"},
		"encrypted SEC 1":     {"Proc-Type header", file(t, "encrypted-sec1"), "an encrypted private key"},
		"encrypted PKCS#8":    {"label of its own", file(t, "encrypted-pkcs8"), "an encrypted private key"},
		"Ed25519":             {"no EdDSA", testkeys.Ed25519(), "an Ed25519 key"},
		"P-224":               {"no JWS algorithm", testkeys.P224(), "an EC key on P-224"},
		"RSA-1024":            {"too short", testkeys.RSA1024(), "an RSA key of 1024 bits"},
		"RSA-1024, then a good": {
			"kube-controller-manager would sign with the first", slices.Concat(testkeys.RSA1024(), testkeys.P256()),
			"an RSA key of 1024 bits",
		},
		"X25519":              {"cannot sign", file(t, "x25519"), "a key agreement key"},
		"secp256k1":           {"unknown curve", file(t, "secp256k1"), "a private key that is not valid SEC 1"},
		"explicit parameters": {"curve without a name", file(t, "ec-explicit-parameters"), "a private key that is not valid SEC 1"},
		"RSA-PSS":             {"restricted to PS256", file(t, "rsa-pss-pkcs8"), "a private key that is not valid PKCS#8"},
		"OpenSSH":             {"ssh-keygen without -m PEM", file(t, "openssh"), "a private key in OpenSSH form"},
		"EC PARAMETERS only":  {"openssl ecparam without -genkey", file(t, "ec-parameters-only"), "EC parameters without a key"},
		"garbage PKCS#1":      {"no DER inside", block("RSA PRIVATE KEY", []byte("garbage")), "a private key that is not valid PKCS#1"},
		"garbage SEC 1":       {"no DER inside", block("EC PRIVATE KEY", []byte("garbage")), "a private key that is not valid SEC 1"},
		"garbage PKCS#8":      {"no DER inside", block("PRIVATE KEY", []byte("garbage")), "a private key that is not valid PKCS#8"},
		"empty block":         {"no DER inside", block("PRIVATE KEY", nil), "a private key that is not valid PKCS#8"},
		"wrong label": {
			"PKCS#8 under the PKCS#1 label", block("RSA PRIVATE KEY", pkcs8), "a private key that is not valid PKCS#1",
		},
		"unknown label":         {"its name is not repeated", block("HUSH", pkcs8), "a PEM block that is not a key"},
		"trailing junk, PKCS#8": {"not clean", block("PRIVATE KEY", append(slices.Clone(pkcs8), 0)), "a private key with trailing bytes"},
		"trailing junk, SEC 1":  {"not clean", block("EC PRIVATE KEY", append(slices.Clone(sec1), 0)), "a private key with trailing bytes"},
		"trailing junk, PKCS#1": {
			"not clean", block("RSA PRIVATE KEY", append(slices.Clone(pkcs1), 0)), "a private key that is not valid PKCS#1",
		},
		"certificate, encrypted": {
			"what was meant as the key explains more", slices.Concat(file(t, "rsa-certificate"), file(t, "encrypted-pkcs8")),
			"an encrypted private key",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			key, err := signing.ParsePrivateKey(tc.data)
			testutil.Require(t, err != nil, "%s: accepted as %v", tc.reason, key)
			testutil.Expect(t, strings.HasPrefix(err.Error(), "found "+tc.found) && strings.Contains(err.Error(), "; accepted is "),
				"%s: error is %q, want it to say found %q and what is accepted", tc.reason, err, tc.found)
			assertQuotesNothing(t, err, tc.data)
		})
	}
}

// assertQuotesNothing looks for any longer piece of a file in an error.
func assertQuotesNothing(tb testing.TB, err error, data []byte) {
	tb.Helper()
	const piece = 12
	text := err.Error()
	for i := range max(0, len(text)-piece+1) {
		quoted := text[i : i+piece]
		testutil.Expect(tb, !bytes.Contains(data, []byte(quoted)), "error %q quotes the file: %q", text, quoted)
	}
}

// TestParsePublicKeysRefuses: what ParsePublicKeys skips beside a good key, ParseAllPublicKeys must not
// lose without a word. What is no key may stay.
func TestParsePublicKeysRefuses(t *testing.T) {
	t.Parallel()
	good := file(t, "ec-pkix")
	const short = "an RSA key of 1024 bits; accepted is RSA of at least 2048 bits"
	cases := map[string]struct {
		data  []byte
		found string
	}{
		"empty":   {nil, "nothing, the file is empty"},
		"no PEM":  {der(t, file(t, "rsa-pkix")), "no PEM block"},
		"cut off": {file(t, "rsa-pkix")[:100], "a damaged or cut off PEM block"},
		"BOM":     {slices.Concat([]byte("\xef\xbb\xbf"), file(t, "rsa-pkix")), "a byte order mark"},
		"BOM, two keys": {
			slices.Concat([]byte("\xef\xbb\xbf"), file(t, "rsa-pkix"), file(t, "rsa-pkix")), "a byte order mark",
		},
		"ssh-rsa": {[]byte("ssh-rsa AAAAB3NzaC1yc2E me@here"), "a public key in OpenSSH form"},
		"ecdsa":   {[]byte("ecdsa-sha2-nistp256 AAAAE2VjZHNh me@here"), "a public key in OpenSSH form"},
		"SSH2": {
			[]byte("---- BEGIN SSH2 PUBLIC KEY ----\nAAAAB3NzaC1yc2E\n---- END SSH2 PUBLIC KEY ----\n"), "a public key in OpenSSH form",
		},
		"encrypted": {file(t, "encrypted-pkcs8"), "an encrypted private key"},
		"request":   {file(t, "request"), "a certificate request"},
		"garbage":   {block("PUBLIC KEY", []byte("garbage")), "a public key that cannot be read"},
		"bad cert":  {block("CERTIFICATE", []byte("garbage")), "a certificate that cannot be read"},
		"bad RSA":   {block("RSA PRIVATE KEY", []byte("garbage")), "a private key that is not valid PKCS#1"},
		"trailing":  {block("PUBLIC KEY", append(der(t, file(t, "rsa-pkix")), 0)), "a public key that cannot be read"},
		"Ed25519":   {file(t, "ed25519-pkix"), "an Ed25519 key"},
		"P-224":     {testkeys.P224(), "an EC key on P-224"},
		"RSA-1024":  {testkeys.RSA1024(), short},
		"secp256k1": {file(t, "secp256k1"), "a private key that is not valid SEC 1"},
		// ParseAllPublicKeys alone refuses these.
		"RSA-1024 before": {slices.Concat(testkeys.RSA1024(), good), short},
		"RSA-1024 behind": {slices.Concat(good, testkeys.RSA1024()), short},
		"P-224 behind":    {slices.Concat(good, testkeys.P224()), "an EC key on P-224"},
		"Ed25519 before":  {slices.Concat(file(t, "ed25519-pkix"), good), "an Ed25519 key"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			keys, err := signing.ParseAllPublicKeys(tc.data)
			if err == nil || len(keys) > 0 || !strings.HasPrefix(err.Error(), "found "+tc.found) ||
				!strings.Contains(err.Error(), "; accepted is ") {
				t.Fatalf("got %v and %v, want an error that says found %q and what is accepted", ids(keys), err, tc.found)
			}
			assertQuotesNothing(t, err, tc.data)
			_, some := signing.ParsePublicKeys(tc.data)
			testutil.Expect(t, (some == nil) == bytes.Contains(tc.data, good), "ParsePublicKeys returned %v", some)
		})
	}
	noKeys := slices.Concat(file(t, "request"), file(t, "encrypted-pkcs8"))
	keys, err := signing.ParseAllPublicKeys(slices.Concat(noKeys, file(t, "ec-parameters-then-sec1"), good))
	if err != nil || len(keys) != 2 {
		t.Errorf("of two keys among blocks that are none it returned %v and %v", ids(keys), err)
	}
}

// der returns the content of the first PEM block.
func der(tb testing.TB, data []byte) []byte {
	tb.Helper()
	block, _ := pem.Decode(data)
	testutil.Require(tb, block != nil, "test file has no PEM block")
	return block.Bytes
}

func ids(keys []signing.PublicKey) []string {
	var all []string
	for _, key := range keys {
		all = append(all, key.ID)
	}
	return all
}
