// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokens_test

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
	"sa-controller-manager/tokens"
)

var account = tokens.Account{Namespace: "demo", Name: "builder", UID: "0e0a3f5c-6d3c-4a0a-9a5f-6f6f1f1f2f2f"}

const secretName = "builder-token-x7k2p"

// namedKeys are the keys that the golden tokens were signed with.
func namedKeys() map[string]*signing.PrivateKey {
	return map[string]*signing.PrivateKey{
		"rsa-2048": testkeys.Parse(testkeys.RSA2048()),
		"rsa-3072": testkeys.Parse(testkeys.RSA3072()),
		"p256":     testkeys.Parse(testkeys.P256()),
		"p384":     testkeys.Parse(testkeys.P384()),
		"p521":     testkeys.Parse(testkeys.P521()),
	}
}

// vector is a golden token with what went into it.
type vector struct {
	Kind            string   `json:"kind"`
	Key             string   `json:"key"`
	Namespace       string   `json:"namespace"`
	Name            string   `json:"name"`
	UID             string   `json:"uid"`
	Secret          string   `json:"secret"`
	Issuer          string   `json:"issuer"`
	Audiences       []string `json:"audiences"`
	LifetimeSeconds int64    `json:"lifetimeSeconds"`
	Token           string   `json:"token"`
}

func (v vector) account() tokens.Account {
	return tokens.Account{Namespace: v.Namespace, Name: v.Name, UID: v.UID}
}

// vectors returns the golden tokens of one kind.
func vectors(tb testing.TB, kind string) []vector {
	tb.Helper()
	data, err := os.ReadFile("testdata/upstream-tokens.json")
	testutil.Must(tb, err)
	var all, chosen []vector
	testutil.Must(tb, json.Unmarshal(data, &all))
	for _, v := range all {
		if v.Kind == kind {
			chosen = append(chosen, v)
		}
	}
	if len(chosen) == 0 {
		tb.Fatalf("no golden tokens of kind %s", kind)
	}
	return chosen
}

// decoded returns header and payload of a token as JSON text.
func decoded(tb testing.TB, token string) (header, payload string) {
	tb.Helper()
	segments := strings.Split(token, ".")
	if len(segments) != 3 {
		tb.Fatalf("the token has %d segments", len(segments))
	}
	var texts [2]string
	for i := range texts {
		text, err := base64.RawURLEncoding.Strict().DecodeString(segments[i])
		testutil.Must(tb, err)
		texts[i] = string(text)
	}
	return texts[0], texts[1]
}

func segment(data string) string { return base64.RawURLEncoding.EncodeToString([]byte(data)) }
