// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package remote_test

import (
	"context"
	"encoding/asn1"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	externaljwtv1 "k8s.io/externaljwt/apis/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"sa-controller-manager/controllers/keyring/remote"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/signertest"
	"sa-controller-manager/signing/testkeys"
)

const foreignID = "projects/p/keys/sa:1"

// foreignSigner is the signer of another program, with a client of it.
type foreignSigner struct {
	*signertest.Foreign

	path   string
	client *remote.Client
}

func newForeignSigner(t *testing.T) *foreignSigner {
	t.Helper()
	s := &foreignSigner{path: filepath.Join(t.TempDir(), "hsm.sock")}
	s.Foreign = signertest.ServeForeign(t, s.path, foreignID, testkeys.P256())
	s.client = remote.NewClient(func() remote.Sockets { return remote.Sockets{"hsm": s.path} }, nil)
	t.Cleanup(s.client.Close)
	return s
}

// pinned returns the key as a ring has it.
func (s *foreignSigner) pinned(t *testing.T) *signing.PrivateKey {
	t.Helper()
	pinned := testutil.Get(s.client.Pin(t.Context(), "hsm"))(t)
	return signing.RemoteKey("hsm", pinned.Key, s.client.Sign)
}

type fixedKeys struct{ *signing.KeySet }

func (k fixedKeys) Keys() *signing.KeySet { return k.KeySet }

func TestRemoteKeyConforms(t *testing.T) {
	t.Parallel()
	signertest.Run(t, func(t *testing.T) signertest.Subject {
		key := newForeignSigner(t).pinned(t)
		return signertest.Subject{
			Signer: key, Keys: fixedKeys{signing.NewKeySet(key.Public())}, Remote: true,
			Styles: []signing.HeaderStyle{signing.JWTHeader, signing.LegacyHeader},
		}
	})
}

// TestBadSigners: nothing that the pinned key does not verify leaves, no error has the claims in it, and
// the first good answer after that does leave.
func TestBadSigners(t *testing.T) {
	t.Parallel()
	header := func(text string) func(*signertest.Behaviour) {
		return func(b *signertest.Behaviour) { b.Header = text }
	}
	broken := func(change func(*externaljwtv1.SignJWTResponse)) func(*signertest.Behaviour) {
		return func(b *signertest.Behaviour) { b.Break = change }
	}
	for name, tc := range map[string]struct {
		does    func(*signertest.Behaviour)
		reason  string
		refused bool
		calls   int  // that end so, 1 if 0
		serves  bool // it is no outage
	}{
		"another key": {
			does: func(b *signertest.Behaviour) { b.PEM = testkeys.P256Other() }, reason: "does not verify with the pinned public half",
		},
		"garbage":      {does: broken(func(r *externaljwtv1.SignJWTResponse) { r.Signature = "AAAA" }), reason: "does not verify"},
		"no signature": {does: broken(func(r *externaljwtv1.SignJWTResponse) { r.Signature = "" }), reason: "not a base64url segment"},
		"line break":   {does: broken(func(r *externaljwtv1.SignJWTResponse) { r.Signature += "\n" }), reason: "not a base64url segment"},
		"padded header": {
			does: broken(func(r *externaljwtv1.SignJWTResponse) { r.Header += "\n" }), reason: "header is not a base64url segment",
		},
		"other kid":    {does: header(`{"alg":"ES256","kid":"next","typ":"JWT"}`), reason: `signs with key "next", which is not pinned`},
		"other alg":    {does: header(`{"alg":"none","kid":"` + foreignID + `","typ":"JWT"}`), reason: `its alg is "none", want ES256`},
		"other typ":    {does: header(`{"alg":"ES256","kid":"` + foreignID + `","typ":"at+jwt"}`), reason: `its typ is "at+jwt"`},
		"no typ":       {does: header(`{"alg":"ES256","kid":"` + foreignID + `"}`), reason: `its typ is ""`},
		"more members": {does: header(`{"alg":"ES256","kid":"` + foreignID + `","typ":"JWT","crit":[]}`), reason: "alg, kid and typ alone"},
		"member twice": {
			does: header(`{"alg":"ES256","kid":"` + foreignID + `","typ":"JWT","alg":"none"}`), reason: "alg, kid and typ alone",
		},
		"upper case": {does: header(`{"ALG":"ES256","kid":"` + foreignID + `","typ":"JWT"}`), reason: "alg, kid and typ alone"},
		"error": {
			does: func(b *signertest.Behaviour) { b.Fails = codes.Internal }, reason: "its answer is the error Internal", serves: true,
		},
		"errors in a row": {
			does: func(b *signertest.Behaviour) { b.Fails = codes.Unknown }, reason: "its answer is the error Unknown", calls: 3,
		},
		"throttled": {
			does: func(b *signertest.Behaviour) { b.Fails = codes.ResourceExhausted }, reason: "its answer is the error ResourceExhausted",
			serves: true,
		},
		"away": {does: func(b *signertest.Behaviour) { b.Fails = codes.Unavailable }, reason: "it is not available"},
		"ASN.1": {
			does:   broken(func(r *externaljwtv1.SignJWTResponse) { r.Signature = asDER(r.GetSignature()) }),
			reason: "its signature is ASN.1 DER",
		},
		"hangs": {does: func(b *signertest.Behaviour) { b.Hang = true }, reason: "no answer within 2s"},
		"refuses claims": {
			does: func(b *signertest.Behaviour) { b.Fails = codes.PermissionDenied }, reason: "it refuses the claims (PermissionDenied)",
			refused: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newForeignSigner(t)
			key := s.pinned(t)
			s.Set(tc.does)
			payload := signertest.Payload(0)
			for range tc.calls - 1 {
				_, _, _ = key.Sign(t.Context(), signing.JWTHeader, payload)
			}
			got, signature, err := key.Sign(t.Context(), signing.JWTHeader, payload)
			away, ok := errors.AsType[*signing.UnavailableError](err)
			if !ok || got != "" || signature != "" || !strings.Contains(away.Reason, tc.reason) || away.Refused != tc.refused ||
				strings.Contains(err.Error(), payload) {
				t.Fatalf("Sign returned %q, %q, %v, want an UnavailableError with %q", got, signature, err, tc.reason)
			}
			status := s.client.Status(signing.NewRing(key.As(signing.Active)))
			testutil.Expect(t, strings.Contains(status, "is away") != (tc.refused || tc.serves), "the status is %q", status)
			s.Set(func(b *signertest.Behaviour) {
				*b = signertest.Behaviour{PEM: testkeys.P256(), Header: `{"alg":"ES256","kid":"` + foreignID + `","typ":"JWT"}`}
			})
			if _, _, err := key.Sign(t.Context(), signing.JWTHeader, payload); err != nil {
				t.Errorf("after the outage: %v", err)
			}
		})
	}
}

// TestProbeIsRefused: that of our own claims is an outage, whatever its code, and that of other claims is none.
func TestProbeIsRefused(t *testing.T) {
	t.Parallel()
	for _, code := range []codes.Code{
		codes.PermissionDenied, codes.FailedPrecondition, codes.InvalidArgument, codes.ResourceExhausted, codes.Internal,
	} {
		t.Run(code.String(), func(t *testing.T) {
			t.Parallel()
			s := newForeignSigner(t)
			key := s.pinned(t)
			s.Set(func(b *signertest.Behaviour) { b.Fails = code })
			_, _, _ = key.Sign(t.Context(), signing.JWTHeader, signertest.Payload(0))
			reason, _ := s.client.Away(key)
			testutil.Expect(t, reason == "it was not tried yet", "after a refusal of one caller it is away: %s", reason)
			ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
			defer stop()
			s.client.Watch(ctx, remote.Watch{
				Ring: func() *signing.Ring { return signing.NewRing(key.As(signing.Active)) },
				Probe: func(ctx context.Context, key *signing.PrivateKey) error {
					_, _, err := key.Sign(ctx, signing.JWTHeader, signertest.Payload(1))
					return err
				},
				Away: func(_ *signing.PrivateKey, reason string) {
					got, _ := s.client.Away(key)
					testutil.Expect(t, got == reason && strings.Contains(reason, code.String()), "away because %q, reported %q", got,
						reason)
					refused := code != codes.ResourceExhausted && code != codes.Internal
					for _, before := range []codes.Code{codes.OK, codes.Unavailable} {
						s.Set(func(b *signertest.Behaviour) { b.Fails = before })
						_, _, _ = key.Sign(ctx, signing.JWTHeader, signertest.Payload(1))
						s.Set(func(b *signertest.Behaviour) { b.Fails = codes.OK })
						_, _, err := key.Sign(ctx, signing.JWTHeader, signertest.Payload(2))
						testutil.Expect(t, err == nil || !refused, "a caller that it serves: %v", err)
						got, _ := s.client.Away(key)
						testutil.Expect(t, !refused || got != "",
							"a caller's token has ended the outage of a refused probe, after %s for another", before)
					}
				},
				Back: func(*signing.PrivateKey) { stop() },
			})
			if reason, _ := s.client.Away(key); reason != "" {
				t.Errorf("it signs, and is away: %s", reason)
			}
		})
	}
}

// TestLies: a signer that signs for our probe alone is away, and callers decide neither how often that is logged nor
// when it ends.
func TestLies(t *testing.T) {
	t.Parallel()
	s := newForeignSigner(t)
	key := s.pinned(t)
	lies := func(ctx context.Context) {
		for i := range 50 {
			header := fmt.Sprintf(`{"alg":"ES256","kid":"another-%d","typ":"JWT"}`, i)
			s.Set(func(b *signertest.Behaviour) { b.Header = header })
			_, _, err := key.Sign(ctx, signing.JWTHeader, signertest.Payload(0))
			testutil.Expect(t, err != nil, "what another key has signed has left")
		}
		s.Set(func(b *signertest.Behaviour) { b.Header = `{"alg":"ES256","kid":"` + foreignID + `","typ":"JWT"}` })
		for _, before := range []codes.Code{codes.OK, codes.Unavailable} {
			s.Set(func(b *signertest.Behaviour) { b.Fails = before })
			_, _, _ = key.Sign(ctx, signing.JWTHeader, signertest.Payload(0))
			s.Set(func(b *signertest.Behaviour) { b.Fails = codes.OK })
			_, _, err := key.Sign(ctx, signing.JWTHeader, signertest.Payload(0))
			testutil.Expect(t, err == nil, "a caller that it serves: %v", err)
		}
	}
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	ctx, stop := context.WithTimeout(klog.NewContext(t.Context(), logger), time.Minute)
	defer stop()
	began, probes, backAt := time.Now(), 0, 0
	s.client.Watch(ctx, remote.Watch{
		Ring: func() *signing.Ring { return signing.NewRing(key.As(signing.Active)) },
		Probe: func(ctx context.Context, key *signing.PrivateKey) error {
			_, _, err := key.Sign(ctx, signing.JWTHeader, signertest.Payload(1))
			if probes++; probes <= 3 {
				lies(ctx)
			}
			return err
		},
		Away: func(_ *signing.PrivateKey, reason string) {
			testutil.Expect(t, strings.Contains(reason, "which is not pinned") && probes == 1, "away after %d probes: %s", probes, reason)
		},
		Back: func(*signing.PrivateKey) {
			backAt = probes
			stop()
		},
	})
	testutil.Expect(t, backAt == 4, "back after %d probes, want 4: callers got wrong signatures during the first three", backAt)
	lines := strings.Count(logger.GetSink().(ktesting.Underlier).GetBuffer().String(), "\n")
	most := 2 + int(time.Since(began)/time.Second)
	testutil.Expect(t, lines <= most, "%d lines, want %d at most", lines, most)
}

// TestLastLine: however often a signer comes and goes, the last line of the log is about how it is.
func TestLastLine(t *testing.T) {
	t.Parallel()
	s := newForeignSigner(t)
	key := s.pinned(t)
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	ctx, stop := context.WithTimeout(klog.NewContext(t.Context(), logger), time.Minute)
	defer stop()
	s.client.Watch(ctx, remote.Watch{
		Ring: func() *signing.Ring { return signing.NewRing(key.As(signing.Active)) },
		Probe: func(ctx context.Context, key *signing.PrivateKey) (err error) {
			for _, code := range []codes.Code{codes.Unavailable, codes.OK, codes.Unavailable} {
				s.Set(func(b *signertest.Behaviour) { b.Fails = code })
				_, _, err = key.Sign(ctx, signing.JWTHeader, signertest.Payload(0))
			}
			return err
		},
		Away: func(*signing.PrivateKey, string) { stop() },
	})
	lines := strings.Split(strings.TrimSpace(logger.GetSink().(ktesting.Underlier).GetBuffer().String()), "\n")
	last := lines[len(lines)-1]
	testutil.Expect(t, strings.Contains(last, "does not sign"), "the last line is %q", last)
}

// TestSocketIsRemoved: a signer that has left the file of sockets is away for longer and longer.
func TestSocketIsRemoved(t *testing.T) {
	t.Parallel()
	key := signing.RemoteKey("gone", testkeys.Parse(testkeys.P256()).Public(), nil)
	client := remote.NewClient(func() remote.Sockets { return nil }, nil)
	for before := time.Duration(-1); before < 20*time.Millisecond; {
		reason, lasted := client.Away(key)
		testutil.Require(t, strings.Contains(reason, "has none for this key") && lasted >= before, "away for %s after %s: %s", lasted,
			before, reason)
		before = lasted
	}
}

// asDER is a signature of RFC 7518 as a KMS makes it.
func asDER(signature string) string {
	raw, _ := base64.RawURLEncoding.DecodeString(signature)
	half := len(raw) / 2
	der, _ := asn1.Marshal(struct{ R, S *big.Int }{new(big.Int).SetBytes(raw[:half]), new(big.Int).SetBytes(raw[half:])})
	return base64.RawURLEncoding.EncodeToString(der)
}

// TestNoPileUp: while a signer hangs, only one caller waits for it, and all get their answer in time.
func TestNoPileUp(t *testing.T) {
	t.Parallel()
	s := newForeignSigner(t)
	key := s.pinned(t)
	s.Set(func(b *signertest.Behaviour) { b.Hang = true })
	begun := time.Now()
	for range 2 {
		var calls sync.WaitGroup
		for i := range 100 {
			calls.Go(func() {
				_, _, err := key.Sign(t.Context(), signing.JWTHeader, signertest.Payload(i))
				testutil.Expect(t, err != nil, "a signer that hangs has signed")
			})
		}
		calls.Wait()
	}
	// Two polls of 2 s, and not 200 calls, a few at a time.
	took := time.Since(begun)
	testutil.Expect(t, took <= 8*time.Second, "200 calls took %s", took)
	s.Set(func(b *signertest.Behaviour) { b.Hang = false })
	_, _, err := key.Sign(t.Context(), signing.JWTHeader, signertest.Payload(0))
	testutil.Expect(t, err == nil, "after the outage: %v", err)
}

// TestGoneAndBack: a signer that has gone is found again without anything being restarted.
func TestGoneAndBack(t *testing.T) {
	t.Parallel()
	s := newForeignSigner(t)
	key := s.pinned(t)
	s.Stop()
	_, _, err := key.Sign(t.Context(), signing.JWTHeader, signertest.Payload(0))
	_, ok := errors.AsType[*signing.UnavailableError](err)
	testutil.Require(t, ok, "Sign returned %v", err)
	s.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for {
		if _, _, err = key.Sign(ctx, signing.JWTHeader, signertest.Payload(0)); err == nil || ctx.Err() != nil {
			break
		}
	}
	testutil.Expect(t, err == nil, "after the outage: %v", err)
}

// TestUnpinnedKey reports a key that a signer lists and the ring does not have, and not each one that it lists next.
func TestUnpinnedKey(t *testing.T) {
	t.Parallel()
	s := newForeignSigner(t)
	key := s.pinned(t)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	reported, probes := "", 0
	s.client.Watch(ctx, remote.Watch{
		Ring: func() *signing.Ring { return signing.NewRing(key.As(signing.Active)) },
		Probe: func(context.Context, *signing.PrivateKey) error {
			if probes++; probes == 3 {
				stop()
			}
			s.Set(func(b *signertest.Behaviour) {
				b.Listed = append(b.Listed[:1:1], signertest.ListedKey(t, fmt.Sprint("next-", probes), testkeys.P256Other()))
			})
			return nil
		},
		Unpinned: func(_ *signing.PrivateKey, ids []string) { reported += strings.Join(ids, " ") },
	})
	testutil.Expect(t, probes == 3 && reported == `"next-1"`, "after %d probes it has reported the keys %s, want next-1", probes, reported)
}

func TestPinRefuses(t *testing.T) {
	t.Parallel()
	listed := func(ids ...string) func(*testing.T, *foreignSigner) {
		return func(t *testing.T, s *foreignSigner) {
			s.Set(func(b *signertest.Behaviour) {
				b.Listed = nil
				for _, id := range ids {
					b.Listed = append(b.Listed, signertest.ListedKey(t, id, testkeys.P256()))
				}
			})
		}
	}
	for name, tc := range map[string]struct {
		given func(*testing.T, *foreignSigner)
		want  string
	}{
		"no key":      {listed(), "it lists 0 keys"},
		"two keys":    {listed("a", "b"), "it lists 2 keys, want the one that it signs with"},
		"long ID":     {listed(strings.Repeat("a", 1025)), "want 1 to 1024 printable"},
		"unprintable": {listed("a\x1b[2J"), `key ID "a\x1b[2J": want 1 to 1024 printable`},
		"excluded": {func(_ *testing.T, s *foreignSigner) {
			s.Set(func(b *signertest.Behaviour) { b.Listed[0].ExcludeFromOidcDiscovery = true })
		}, "excludes its key from OIDC discovery"},
		"no public key": {
			func(_ *testing.T, s *foreignSigner) {
				s.Set(func(b *signertest.Behaviour) { b.Listed[0].Key = []byte("key") })
			}, "is not a PKIX public key",
		},
		"gone":         {func(_ *testing.T, s *foreignSigner) { s.Stop() }, "no such file"},
		"open to all":  {func(t *testing.T, s *foreignSigner) { chmod(t, s.path, 0o777) }, "every user may have tokens signed"},
		"unknown name": {func(_ *testing.T, s *foreignSigner) { s.path = "" }, "the file of sockets has none for this key"},
		"another user's": {func(t *testing.T, s *foreignSigner) {
			if err := os.Chown(s.path, 4711, -1); err != nil {
				t.Skip("only root can give a socket away")
			}
		}, "another user owns socket"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newForeignSigner(t)
			tc.given(t, s)
			if _, err := s.client.Pin(t.Context(), "hsm"); err == nil || !strings.Contains(err.Error(), tc.want) ||
				!strings.HasPrefix(err.Error(), "kep740:hsm: ") {
				t.Errorf("Pin returned %v, want %q", err, tc.want)
			}
		})
	}
}

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	testutil.Must(t, os.Chmod(path, mode))
}

func TestParseSockets(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		"schemaVersion: 1\nsockets:\n  hsm: /run/hsm.sock\n  other: /run/other.sock\n": "",
		"schemaVersion: 1\n":              "",
		"":                                "schemaVersion is 0, want 1",
		"schemaVersion: 2\nsockets: {}\n": "schemaVersion is 2, want 1",
		"hsm: /run/hsm.sock\n":            `want "schemaVersion: 1" and "sockets:"`,
		"schemaVersion: 1\nsockets: {hsm: /a, hsm: /b}\n":                       `already`,
		"schemaVersion: 1\nsockets: {HSM: /a}\n":                                `sockets: name "HSM": want lower-case letters`,
		"schemaVersion: 1\nsockets: {hsm: a.sock}\n":                            `sockets: hsm: path "a.sock": want an absolute path`,
		"schemaVersion: 1\nsockets: {hsm: /" + strings.Repeat("a", 107) + "}\n": "of at most 107 bytes",
		"schemaVersion: 1\nsockets: {a: /run/x, b: /run//x}\n":                  "a and b have the same path",
	} {
		if _, err := remote.ParseSockets([]byte(content)); (err == nil) != (want == "") || err != nil &&
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", content, err, want)
		}
	}
}
