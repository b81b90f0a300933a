// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package canary

import (
	"bytes"
	"crypto/ecdsa"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"k8s.io/client-go/util/keyutil"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
)

// TestCanaryFinds shows that the check at the end of the run can fail.
func TestCanaryFinds(t *testing.T) {
	t.Parallel()
	token := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"RS256","kid":"x"}`)) + "." + strings.Repeat("p", 100) + "." +
		strings.Repeat("s", 100)
	key := "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIKOzabcdefghijklmnopqrstuvwxyz\n-----END EC PRIVATE KEY-----\n"
	whole, number := testkeys.P256(), privateNumber(t, testkeys.P256())
	rsaKey := testkeys.RSA2048()
	_, encoded, _ := bytes.Cut(whole, []byte("\n")) // without the words before it
	der, _ := pem.Decode(rsaKey)
	for name, tc := range map[string]struct {
		reason, text string
		want         bool
	}{
		"Nothing":   {text: "I0102 03:04:05.678901 1 x.go:1] \"Filled token secret\" secret=\"a/b\"", want: false},
		"Token":     {text: "token=" + token, want: true},
		"Encoded":   {reason: "JSON", text: `{"data":{"token":"` + base64.StdEncoding.EncodeToString([]byte(token)) + `"}}`, want: true},
		"Dumped":    {reason: "protobuf at -v=10", text: hex.Dump([]byte("\x12\x05" + token)), want: true},
		"Header":    {reason: "a token that was not recorded", text: "token=" + strings.Split(token, ".")[0], want: true},
		"Signature": {text: "sig=" + strings.Repeat("s", 100), want: true},
		"Cut": {
			reason: "half a signature makes the other half easier to guess", text: "sig=" + token[len(token)-80:len(token)-40] + "...",
			want: true,
		},
		"KeyLine":   {text: "found MHcCAQEEIKOzabcdefghijklmnopqrstuvwxyz", want: true},
		"Payload":   {reason: "the claims alone", text: "claims=" + strings.Repeat("p", 100), want: true},
		"PEMInJSON": {reason: "a Secret's data", text: `"ca.key":"` + base64.StdEncoding.EncodeToString(encoded) + `"`, want: true},
		"DER": {
			reason: "in base64 that begins elsewhere", text: "x" + base64.StdEncoding.EncodeToString(append([]byte("xx"), der.Bytes...)),
			want: true,
		},
		"JWK":       {text: `"d":"` + base64.RawURLEncoding.EncodeToString(number) + `"`, want: true},
		"Hex":       {text: hex.EncodeToString(number), want: true},
		"Decimal":   {reason: "%v of a key", text: fmt.Sprintf("D:%v", new(big.Int).SetBytes(number)), want: true},
		"Bytes":     {reason: "%v of bytes", text: fmt.Sprint(number), want: true},
		"PublicKey": {reason: "is no secret", text: publicText(t, rsaKey), want: false},
		"KeyLabel":  {text: "found -----BEGIN EC PRIVATE KEY-----", want: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var c Canary
			c.AddTokens([]string{token})
			for _, pem := range [][]byte{[]byte(key), whole, rsaKey} {
				c.AddKey(pem)
			}
			c.Add("test", tc.text)
			err := c.Check()
			testutil.Expect(t, (err != nil) == tc.want, "%s: found %v, want something: %v", tc.reason, err, tc.want)
		})
	}
}

// privateNumber is what makes an ECDSA key private.
func privateNumber(t *testing.T, pem []byte) []byte {
	t.Helper()
	key := testutil.Get(keyutil.ParsePrivateKeyPEM(pem))(t)
	return testutil.Get(key.(*ecdsa.PrivateKey).Bytes())(t)
}

// publicText is the public half as a JWKS and as %v has it.
func publicText(t *testing.T, pem []byte) string {
	t.Helper()
	keys := testutil.Get(signing.ParsePublicKeys(pem))(t)
	document := testutil.Get(signing.MarshalJWKS(keys))(t)
	return fmt.Sprintf("%s %v", document, keys[0].Key)
}
