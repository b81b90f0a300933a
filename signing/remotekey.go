// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signing

import (
	"context"
	"fmt"
	"regexp"
	"strings"
)

const (
	// signerPrefix begins the private half of a key that another process of this host has.
	signerPrefix = "kep740:"

	// maxKeyID is how long a key ID may be, in bytes (KEP-740).
	maxKeyID = 1024
)

var signerForm = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$`)

// ParseSigner returns NAME of kep740:NAME.
func ParseSigner(signer string) (name string, err error) {
	name, ok := strings.CutPrefix(signer, signerPrefix)
	if !ok || !ValidSignerName(name) {
		return "", fmt.Errorf("%q is not kep740:NAME, with a NAME of lower-case letters, digits, \"-\" and \".\", 63 at most", signer)
	}
	return name, nil
}

// ValidSignerName reports whether name may stand in kep740:NAME.
func ValidSignerName(name string) bool { return signerForm.MatchString(name) }

// CheckKeyID refuses key IDs that a foreign signer must not have.
func CheckKeyID(id string) error {
	if id == "" || len(id) > maxKeyID || strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("key ID %.64q: want 1 to %d printable ASCII characters without spaces", id, maxKeyID)
	}
	return nil
}

// RemoteSign has the process NAME sign a payload. It returns what key verifies, with a header that has
// exactly alg and kid of key and typ JWT; otherwise the error is an UnavailableError or that of ctx.
type RemoteSign func(ctx context.Context, name string, key PublicKey, payload string) (header, signature string, err error)

// RemoteKey returns a key that the process NAME has. Without sign, Sign returns an UnavailableError.
func RemoteKey(name string, public PublicKey, sign RemoteSign) *PrivateKey {
	if sign == nil {
		sign = noSockets
	}
	return &PrivateKey{
		public: public, signer: signerPrefix + name,
		sign: func(ctx context.Context, _ HeaderStyle, payload string) (header, signature string, err error) {
			return sign(ctx, name, public, payload)
		},
	}
}

func noSockets(_ context.Context, name string, key PublicKey, _ string) (header, signature string, err error) {
	return "", "", &UnavailableError{Name: name, KeyID: key.ID,
		Reason: "it is not known where its socket is"}
}

// UnavailableError means that the process which has a key has not signed with it. It contains nothing
// of the payload and no text of that process.
type UnavailableError struct {
	Name, KeyID, Reason string
	// Refused means that the process answers, and does not want to sign this payload.
	Refused bool
}

func (e *UnavailableError) Error() string {
	return fmt.Sprintf("%s%s does not sign with key %s: %s", signerPrefix, e.Name, e.KeyID, e.Reason)
}
