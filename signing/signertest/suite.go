// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signertest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
)

// Subject is a signer under test.
type Subject struct {
	Signer signing.Signer
	// Keys are what the signer says verifies.
	Keys signing.KeySource
	// Styles are the header styles that it knows; of the others it says so.
	Styles []signing.HeaderStyle
	// Remote says that another process has the key: its headers have typ in every style, and its key ID
	// may be one that it has chosen.
	Remote bool
	// Secret are texts that no error may hold, such as the lines of the key's PEM file.
	Secret []string
	// Rotate makes another key the active one. Nil leaves that out.
	Rotate func(t *testing.T)
}

// Run runs the suite. start makes a signer of its own for each test, whose payloads come from
// Payload.
func Run(t *testing.T, start func(t *testing.T) Subject) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, Subject){
		"header":         header,
		"signature":      signature,
		"refusals":       refusals,
		"unknown style":  unknownStyle,
		"ended context":  endedContext,
		"concurrent use": concurrentUse,
		"rotation":       rotation,
	} {
		t.Run(name, func(t *testing.T) { test(t, start(t)) })
	}
}

// header wants the members of the style and no others, an algorithm that goes with the key, and a
// key ID that is published.
func header(t *testing.T, subject Subject) {
	for _, style := range subject.Styles {
		signed := sign(t, subject, style, Payload(0))
		encoded := decode(t, "header", signed.header)
		key := signed.key(t, subject)
		algorithm := testutil.Get(signing.AlgorithmFor(key.Key))(t)
		// White space and order are the same for all signers, so that tokens can be compared.
		exact := fmt.Sprintf(`{"alg":%q,"kid":%q}`, algorithm, key.ID)
		if subject.Remote || style == signing.JWTHeader {
			exact = fmt.Sprintf(`{"alg":%q,"kid":%q,"typ":"JWT"}`, algorithm, key.ID)
		}
		testutil.Expect(t, encoded == exact, "style %d: header is %s, want %s", style, encoded, exact)
		if want, err := signing.NewPublicKey(key.Key); err != nil || want.ID != key.ID && !subject.Remote ||
			want.Algorithm != key.Algorithm {
			t.Errorf("style %d: the published key has the names %s and %s, want those derived from the key", style, key.ID, key.Algorithm)
		}
	}
}

// signature wants one that the published key verifies, and that covers the payload as it stands: with
// white space, and with more audiences than any token has.
func signature(t *testing.T, subject Subject) {
	loose := strings.ReplaceAll(decode(t, "payload", Payload(0)), `,"`, ` , "`)
	for _, style := range subject.Styles {
		for _, payload := range []string{Payload(0), base64.RawURLEncoding.EncodeToString([]byte(loose)), Payload(32 << 10)} {
			signed := sign(t, subject, style, payload)
			signed.verify(t, subject)
			signed.payload = Payload(1)
			testutil.Expect(t, !signed.valid(t, subject), "style %d: the signature verifies with another payload", style)
		}
	}
}

// refusals wants no signature under what is not a segment, and no word of it in the error.
func refusals(t *testing.T, subject Subject) {
	for name, payload := range map[string]string{
		"empty":           "",
		"two segments":    Payload(0) + "." + Payload(0),
		"a whole token":   "e30." + Payload(0) + ".e30",
		"padding":         base64.URLEncoding.EncodeToString([]byte("secret-of-the-caller")),
		"standard base64": base64.RawStdEncoding.EncodeToString([]byte{0xff, 0xff, 0xfe}),
		"line break":      Payload(0) + "\n",
		"JSON":            `{"sub":"secret-of-the-caller"}`,
		"binary":          "\x30\x82\x00",
	} {
		t.Run(name, func(t *testing.T) {
			for _, style := range subject.Styles {
				header, signature, err := subject.Signer.Sign(t.Context(), style, payload)
				if err == nil || header != "" || signature != "" {
					t.Errorf("style %d: Sign returned %q, %q, %v, want an error alone", style, header, signature, err)
					continue
				}
				discreet(t, subject, err, payload)
			}
		})
	}
}

func unknownStyle(t *testing.T, subject Subject) {
	for _, style := range []signing.HeaderStyle{signing.LegacyHeader, signing.JWTHeader, signing.JWTHeader + 1, -1} {
		if slices.Contains(subject.Styles, style) {
			continue
		}
		header, signature, err := subject.Signer.Sign(t.Context(), style, Payload(0))
		testutil.Expect(t, err != nil && header == "" && signature == "", "style %d: Sign returned %q, %q, %v, want an error alone", style,
			header, signature, err)
	}
}

func endedContext(t *testing.T, subject Subject) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	header, signature, err := subject.Signer.Sign(ctx, subject.Styles[0], Payload(0))
	testutil.Expect(t, header == "" && signature == "" && errors.Is(err, context.Canceled),
		"Sign returned %q, %q, %v, want the context's error alone", header, signature, err)
}

// concurrentUse wants each caller to get the signature of its own payload.
func concurrentUse(t *testing.T, subject Subject) {
	signed := make([]signedToken, 32)
	var running sync.WaitGroup
	for i := range signed {
		running.Go(func() {
			payload := Payload(i)
			header, signature, err := subject.Signer.Sign(t.Context(), subject.Styles[i%len(subject.Styles)], payload)
			testutil.Expect(t, err == nil, "call %d: %v", i, err)
			signed[i] = signedToken{header, payload, signature}
		})
	}
	running.Wait()
	if t.Failed() {
		return
	}
	for i, s := range signed {
		testutil.Expect(t, s.valid(t, subject), "call %d: the signature is not that of its payload", i)
	}
}

// rotation wants the previous key to verify on, and the next one to be known before a token bears
// it.
func rotation(t *testing.T, subject Subject) {
	if subject.Rotate == nil {
		t.Skip("this signer has one key")
	}
	before := sign(t, subject, subject.Styles[0], Payload(0))
	subject.Rotate(t)
	after := sign(t, subject, subject.Styles[0], Payload(0))
	testutil.Expect(t, KeyID(t, before.header) != KeyID(t, after.header), "the key is the same after a rotation")
	before.verify(t, subject)
	after.verify(t, subject)
}

// signedToken is a token in its three segments.
type signedToken struct{ header, payload, signature string }

func sign(t *testing.T, subject Subject, style signing.HeaderStyle, payload string) signedToken {
	t.Helper()
	header, signature, err := subject.Signer.Sign(t.Context(), style, payload)
	testutil.Require(t, err == nil, "sign: %v", err)
	return signedToken{header, payload, signature}
}

// KeyID returns the key ID of a header segment.
func KeyID(t *testing.T, segment string) string {
	t.Helper()
	var header struct {
		KeyID string `json:"kid"`
	}
	err := json.Unmarshal([]byte(decode(t, "header", segment)), &header)
	testutil.Require(t, err == nil, "header: %v", err)
	return header.KeyID
}

// key is the published key that the token names.
func (s signedToken) key(t *testing.T, subject Subject) signing.PublicKey {
	t.Helper()
	id := KeyID(t, s.header)
	key, ok := subject.Keys.Keys().Lookup(id)
	testutil.Require(t, ok, "the signer does not publish key %s, which it signs with", id)
	return key
}

func (s signedToken) verify(t *testing.T, subject Subject) {
	t.Helper()
	testutil.Expect(t, s.valid(t, subject), "the signature does not verify")
}

func (s signedToken) valid(t *testing.T, subject Subject) bool {
	t.Helper()
	key := s.key(t, subject)
	parser := jwt.NewParser(jwt.WithValidMethods([]string{key.Algorithm}), jwt.WithStrictDecoding(), jwt.WithoutClaimsValidation())
	_, err := parser.Parse(s.header+"."+s.payload+"."+s.signature, func(*jwt.Token) (any, error) { return key.Key, nil })
	return err == nil
}

// discreet wants neither the payload nor a secret in an error.
func discreet(t *testing.T, subject Subject, err error, payload string) {
	t.Helper()
	for _, secret := range append([]string{payload, "secret-of-the-caller"}, subject.Secret...) {
		testutil.Expect(t, len(secret) <= 3 || !strings.Contains(err.Error(), secret), "the error repeats what it must not: %v", err)
	}
}

func decode(t *testing.T, name, segment string) string {
	t.Helper()
	decoded, err := base64.RawURLEncoding.Strict().DecodeString(segment)
	testutil.Require(t, err == nil, "%s is not a base64url segment: %v", name, err)
	return string(decoded)
}
