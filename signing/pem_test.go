// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signing_test

import (
	"bytes"
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
		"text around":        {"openssl -text", slices.Concat([]byte("Private-Key: (2048 bit)\n"), testkeys.RSA2048(), []byte("end\n")), rsaID},
		"byte order mark":    {"it is leading text", slices.Concat([]byte("\xef\xbb\xbf\n"), testkeys.P256()), ecID},
		"two keys":           {"the first wins", slices.Concat(testkeys.P256(), testkeys.RSA2048()), ecID},
		"certificate first":  {"a bundle", slices.Concat(file(t, "rsa-certificate"), testkeys.RSA2048()), rsaID},
		"public key first":   {"both halves in a file", slices.Concat(file(t, "rsa-pkix"), testkeys.RSA2048()), rsaID},
		"garbage first":      {"the first that can be read", slices.Concat(garbage, testkeys.P256()), ecID},
		"encrypted first":    {"the first that can be read", slices.Concat(file(t, "encrypted-pkcs1"), testkeys.P256()), ecID},
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
			"the second would sign", slices.Concat([]byte("\xef\xbb\xbf"), block("PRIVATE KEY", pkcs8), testkeys.RSA2048()), "a byte order mark",
		},
		"UTF-16":              {"of an editor", []byte("\xff\xfe-\x00"), "a byte order mark"},
		"OpenSSH public key":  {"id_rsa.pub", []byte("ssh-rsa AAAAB3NzaC1yc2E me@here"), "a public key in OpenSSH form, which ssh-keygen -e"},
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
			"kube-controller-manager would sign with the first", slices.Concat(testkeys.RSA1024(), testkeys.P256()), "an RSA key of 1024 bits",
		},
		"X25519":                {"cannot sign", file(t, "x25519"), "a key agreement key"},
		"secp256k1":             {"unknown curve", file(t, "secp256k1"), "a private key that is not valid SEC 1"},
		"explicit parameters":   {"curve without a name", file(t, "ec-explicit-parameters"), "a private key that is not valid SEC 1"},
		"RSA-PSS":               {"restricted to PS256", file(t, "rsa-pss-pkcs8"), "a private key that is not valid PKCS#8"},
		"OpenSSH":               {"ssh-keygen without -m PEM", file(t, "openssh"), "a private key in OpenSSH form"},
		"EC PARAMETERS only":    {"openssl ecparam without -genkey", file(t, "ec-parameters-only"), "EC parameters without a key"},
		"garbage PKCS#1":        {"no DER inside", block("RSA PRIVATE KEY", []byte("garbage")), "a private key that is not valid PKCS#1"},
		"garbage SEC 1":         {"no DER inside", block("EC PRIVATE KEY", []byte("garbage")), "a private key that is not valid SEC 1"},
		"garbage PKCS#8":        {"no DER inside", block("PRIVATE KEY", []byte("garbage")), "a private key that is not valid PKCS#8"},
		"empty block":           {"no DER inside", block("PRIVATE KEY", nil), "a private key that is not valid PKCS#8"},
		"wrong label":           {"PKCS#8 under the PKCS#1 label", block("RSA PRIVATE KEY", pkcs8), "a private key that is not valid PKCS#1"},
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
