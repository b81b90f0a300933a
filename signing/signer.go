// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signing

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
)

// HeaderStyle selects the members of the protected header.
type HeaderStyle int

const (
	// LegacyHeader has alg and kid, as kube-controller-manager writes it into token Secrets. A key of
	// another process adds typ here too, which kube-apiserver accepts.
	LegacyHeader HeaderStyle = iota
	// JWTHeader adds typ "JWT", which KEP-740 demands of an external signer.
	JWTHeader
)

// Signer signs the payload of a token, like the Sign call of KEP-740. The implementation chooses key,
// algorithm and header, and need not interpret the claims.
type Signer interface {
	// Sign returns a header and a signature segment such that header.payload.signature is a JWS in
	// compact form. All three are unpadded base64url. Sign may block on a remote signer until ctx
	// ends. Errors contain neither payload nor key material.
	Sign(ctx context.Context, style HeaderStyle, payload string) (header, signature string, err error)
}

// PrivateKey is a signing key. It is immutable and safe for concurrent use.
//
// The key, or the way to the process that has it, and the PEM form are in closures, where neither a
// format verb nor reflection reaches them.
type PrivateKey struct {
	public PublicKey
	signer string // kep740:NAME, "" if the key is in this process
	sign   signFunc
	pem    func() []byte // nil if the key was not read
}

// signFunc is Signer.Sign for arguments that are valid.
type signFunc func(ctx context.Context, style HeaderStyle, payload string) (header, signature string, err error)

var _ Signer = (*PrivateKey)(nil)

// NewPrivateKey wraps a key that AlgorithmFor accepts. It must be an *rsa.PrivateKey or an
// *ecdsa.PrivateKey, because golang-jwt signs with these only.
func NewPrivateKey(key crypto.Signer) (*PrivateKey, error) {
	if err := inMemory(key); err != nil {
		return nil, err
	}
	public, err := NewPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	method, err := methodFor(public.Key)
	if err != nil {
		return nil, err
	}
	headers := [2]string{LegacyHeader: encodeHeader(public, ""), JWTHeader: encodeHeader(public, "JWT")}
	return &PrivateKey{
		public: public,
		sign: func(_ context.Context, style HeaderStyle, payload string) (header, signature string, err error) {
			header = headers[style]
			sig, err := method.Sign(header+"."+payload, key)
			if err != nil {
				return "", "", fmt.Errorf("sign with key %s: %w", public.ID, err)
			}
			return header, base64.RawURLEncoding.EncodeToString(sig), nil
		},
	}, nil
}

// inMemory refuses signers of other types than those of NewPrivateKey, and typed nils, whose Public
// would panic.
func inMemory(key crypto.Signer) error {
	switch k := key.(type) {
	case *rsa.PrivateKey:
		if k != nil {
			return nil
		}
	case *ecdsa.PrivateKey:
		if k != nil {
			return nil
		}
	case ed25519.PrivateKey:
		_, err := methodFor(k.Public())
		return err
	case nil:
	default:
		return fmt.Errorf("found %s held outside this process; accepted is %s", describeKey(key.Public()), acceptedKeys)
	}
	return fmt.Errorf("found no key; accepted is %s", acceptedKeys)
}

// encodeHeader returns the encoded protected header. Like go-jose it sorts the members and writes no
// white space, so with encodePayload of package tokens our RS256 tokens equal those of
// kube-controller-manager byte for byte.
func encodeHeader(key PublicKey, typ string) string {
	header, err := json.Marshal(struct {
		Algorithm string `json:"alg"`
		KeyID     string `json:"kid"`
		Type      string `json:"typ,omitempty"`
	}{key.Algorithm, key.ID, typ})
	if err != nil {
		panic(err) // three strings always have a JSON form
	}
	return base64.RawURLEncoding.EncodeToString(header)
}

// ID returns the key ID, the kid header of tokens signed with this key.
func (k *PrivateKey) ID() string { return k.public.ID }

// Public returns the verification key.
func (k *PrivateKey) Public() PublicKey { return k.public }

// Signer returns kep740:NAME if another process of this host has the key, or "".
func (k *PrivateKey) Signer() string { return k.signer }

// PEM returns the one PEM block that ParsePrivateKey has read the key from, or nil.
func (k *PrivateKey) PEM() []byte {
	if k.pem == nil {
		return nil
	}
	return k.pem()
}

// Sign implements Signer. It refuses a payload that is not a base64url segment, so that it cannot be
// used to sign messages of another protocol.
func (k *PrivateKey) Sign(ctx context.Context, style HeaderStyle, payload string) (header, signature string, err error) {
	if err := ctx.Err(); err != nil {
		return "", "", err
	}
	if style != LegacyHeader && style != JWTHeader {
		return "", "", fmt.Errorf("sign with key %s: unknown header style %d", k.ID(), style)
	}
	if !isBase64URL(payload) {
		return "", "", fmt.Errorf("sign with key %s: payload is not a base64url segment", k.ID())
	}
	return k.sign(ctx, style, payload)
}

func isBase64URL(segment string) bool {
	for i := range len(segment) {
		switch c := segment[i]; {
		case 'A' <= c && c <= 'Z', 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_':
		default:
			return false
		}
	}
	return segment != ""
}

// String returns the algorithm and the ID of the key, as do all verbs and encoders below.
func (k *PrivateKey) String() string {
	if k == nil {
		return "no signing key"
	}
	return fmt.Sprintf("%s signing key %s", k.public.Algorithm, k.public.ID)
}

// Format keeps every verb, such as %#v and %x, from printing fields.
func (k *PrivateKey) Format(state fmt.State, _ rune) { _, _ = io.WriteString(state, k.String()) }

// MarshalJSON keeps structured loggers and debug endpoints from printing fields.
func (k *PrivateKey) MarshalJSON() ([]byte, error) { return json.Marshal(k.String()) }

var (
	_ fmt.Formatter  = (*PrivateKey)(nil)
	_ json.Marshaler = (*PrivateKey)(nil)
)
