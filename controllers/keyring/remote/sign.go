// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"encoding/asn1"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	externaljwtv1 "k8s.io/externaljwt/apis/v1"
	kjson "sigs.k8s.io/json"

	"sa-controller-manager/signing"
)

// Sign is a signing.RemoteSign.
func (c *Client) Sign(ctx context.Context, name string, key signing.PublicKey, payload string) (header, signature string, err error) {
	s, err := c.signer(name)
	if err != nil {
		return "", "", unavailable(name, key, err.Error())
	}
	if away := s.outage.Load(); away != nil && !away.partial {
		if !s.trial.TryLock() {
			return "", "", unavailable(name, key, away.reason)
		}
		defer s.trial.Unlock()
	}
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	select {
	case s.pending <- struct{}{}:
		defer func() { <-s.pending }()
	case <-bounded.Done():
		if ctx.Err() != nil {
			return "", "", ctx.Err()
		}
		return "", "", unavailable(name, key, fmt.Sprintf("it has %d signatures to make already", maxPending))
	}
	begun, lied := time.Now(), false
	response, err := s.client.Sign(bounded, &externaljwtv1.SignJWTRequest{Claims: payload})
	c.metrics.took.WithLabelValues(key.ID).Observe(time.Since(begun).Seconds())
	switch {
	case err != nil && ctx.Err() != nil:
		return "", "", ctx.Err() // the caller gave up
	case refuses(err): // for another caller it may sign: Watch finds out whether it does at all
		return "", "", &signing.UnavailableError{Name: name, KeyID: key.ID, Refused: true,
			Reason: fmt.Sprintf("it refuses the claims (%s)", status.Code(err))}
	case err != nil:
		plain := !isAway(err)
		err = s.reason(err)
		if plain && s.errors.Add(1) < errorsInARow { // this request fails, and the next one is tried
			return "", "", unavailable(name, key, err.Error())
		}
	default:
		err = check(key, response.GetHeader(), payload, response.GetSignature())
		lied = err != nil
	}
	known := s.outage.Load()
	partial := known != nil && known.partial // only Watch ends it, and what another caller gets says less
	if err != nil {
		s.lied.CompareAndSwap(false, lied)
		if !partial || lied {
			s.began(err.Error(), lied)
		}
		return "", "", unavailable(name, key, err.Error())
	}
	if !partial {
		s.ended()
	}
	return response.GetHeader(), response.GetSignature(), nil
}

// errorsInARow begin an outage: one may be about its request alone, as when a cloud throttles.
const errorsInARow = 3

// isAway reports whether one answer is enough to begin an outage.
func isAway(err error) bool {
	return slices.Contains([]codes.Code{codes.Unavailable, codes.DeadlineExceeded}, status.Code(err))
}

// refuses reports whether an answer is about the claims, and not about the signer.
func refuses(err error) bool {
	about := []codes.Code{codes.InvalidArgument, codes.PermissionDenied, codes.FailedPrecondition, codes.OutOfRange}
	return slices.Contains(about, status.Code(err))
}

// reason returns what is known of a failed call. The text of the signer may contain claims.
func (s *signer) reason(err error) error {
	switch code := status.Code(err); code {
	case codes.Unavailable:
		if undialed := s.undialed.Load(); undialed != nil && *undialed != nil {
			return *undialed
		}
		return errors.New("it is not available, or has gone")
	case codes.DeadlineExceeded:
		return fmt.Errorf("no answer within %s", timeout)
	default:
		return fmt.Errorf("its answer is the error %s", code)
	}
}

// check wants exactly the pinned header, and a signature of the pinned key.
func check(key signing.PublicKey, header, payload, signature string) error {
	decoded, err := base64.RawURLEncoding.Strict().DecodeString(header)
	if err != nil || base64.RawURLEncoding.EncodeToString(decoded) != header { // the decoder skips line breaks
		return errors.New("its header is not a base64url segment")
	}
	var members struct {
		Algorithm string `json:"alg"`
		KeyID     string `json:"kid"`
		Type      string `json:"typ"`
	}
	if unknown, err := kjson.UnmarshalStrict(decoded, &members); err != nil || len(unknown) > 0 {
		return errors.New("its header is not a JSON object with alg, kid and typ alone")
	}
	switch {
	case members.KeyID != key.ID:
		return fmt.Errorf("it signs with key %.64q, which is not pinned", members.KeyID)
	case members.Algorithm != key.Algorithm:
		return fmt.Errorf("its alg is %.64q, want %s", members.Algorithm, key.Algorithm)
	case members.Type != "JWT":
		return fmt.Errorf("its typ is %.64q, want JWT", members.Type)
	}
	if err := key.Verify(header, payload, signature); err != nil {
		if isDER(signature) {
			return errors.New("its signature is ASN.1 DER, want R and S side by side (RFC 7518, section 3.4)")
		}
		return fmt.Errorf("its answer does not verify with the pinned public half: %w", err)
	}
	return nil
}

// isDER reports whether a signature is what a KMS or crypto/ecdsa makes.
func isDER(signature string) bool {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(signature)
	if err != nil {
		return false
	}
	rest, err := asn1.Unmarshal(raw, &struct{ R, S *big.Int }{})
	return err == nil && len(rest) == 0
}

// began begins an outage, or changes its reason. A partial one stays that until Watch has found that the signer signs.
func (s *signer) began(reason string, partial bool) {
	now := &outage{since: time.Now(), reason: reason, partial: partial}
	if known := s.outage.Load(); known != nil {
		now.since, now.partial = known.since, known.partial || partial
	}
	s.outage.Store(now)
}

func (s *signer) ended() {
	s.errors.Store(0)
	s.outage.Store(nil)
}
