// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokens_test

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
	"sa-controller-manager/tokens"
)

var account = tokens.Account{Namespace: "demo", Name: "builder", UID: "0e0a3f5c-6d3c-4a0a-9a5f-6f6f1f1f2f2f"}

const secretName = "builder-token-x7k2p"

// signingKey parses a test key that must be good.
func signingKey(t testing.TB, data []byte) *signing.PrivateKey {
	t.Helper()
	key, err := signing.ParsePrivateKey(data)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// namedKeys are the keys that the golden tokens were signed with.
func namedKeys(t testing.TB) map[string]*signing.PrivateKey {
	return map[string]*signing.PrivateKey{
		"rsa-2048": signingKey(t, testkeys.RSA2048()),
		"rsa-3072": signingKey(t, testkeys.RSA3072()),
		"p256":     signingKey(t, testkeys.P256()),
		"p384":     signingKey(t, testkeys.P384()),
		"p521":     signingKey(t, testkeys.P521()),
	}
}

// vector is a golden token with what went into it.
type vector struct {
	Kind, Key, Namespace, Name, UID, Secret, Issuer, Token string

	Audiences       []string
	LifetimeSeconds int64
}

func (v vector) account() tokens.Account {
	return tokens.Account{Namespace: v.Namespace, Name: v.Name, UID: v.UID}
}

// vectors returns the golden tokens of one kind.
func vectors(t testing.TB, kind string) []vector {
	t.Helper()
	data, err := os.ReadFile("testdata/upstream-tokens.json")
	if err != nil {
		t.Fatal(err)
	}
	var all, chosen []vector
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	for _, v := range all {
		if v.Kind == kind {
			chosen = append(chosen, v)
		}
	}
	if len(chosen) == 0 {
		t.Fatalf("no golden tokens of kind %s", kind)
	}
	return chosen
}

// decoded returns header and payload of a token as JSON text.
func decoded(t testing.TB, token string) (header, payload string) {
	t.Helper()
	segments := strings.Split(token, ".")
	if len(segments) != 3 {
		t.Fatalf("the token has %d segments", len(segments))
	}
	var texts [2]string
	for i := range texts {
		text, err := base64.RawURLEncoding.Strict().DecodeString(segments[i])
		if err != nil {
			t.Fatal(err)
		}
		texts[i] = string(text)
	}
	return texts[0], texts[1]
}

func segment(data string) string { return base64.RawURLEncoding.EncodeToString([]byte(data)) }
