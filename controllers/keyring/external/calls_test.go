// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package external_test

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	externaljwtv1 "k8s.io/externaljwt/apis/v1"

	"sa-controller-manager/controllers/keyring/external"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/signertest"
)

func TestAnswersOfTheServer(t *testing.T) {
	t.Parallel()
	ring := newRing(t)
	config := configFor(t, ring)
	serve(t, config)
	client := externaljwtv1.NewExternalJWTSignerClient(connect(t, config.Path).Conn())

	metadata, err := client.Metadata(t.Context(), &externaljwtv1.MetadataRequest{})
	testutil.Expect(t, err == nil && metadata.GetMaxTokenExpirationSeconds() == 24*60*60, "Metadata answers %v, %v, want 86400 s", metadata,
		err)
	fetch := func() *externaljwtv1.FetchKeysResponse {
		t.Helper()
		answer := testutil.Get(client.FetchKeys(t.Context(), &externaljwtv1.FetchKeysRequest{}))(t)
		var want, got []string
		for _, key := range ring.Keys().All() {
			want = append(want, key.ID)
		}
		for _, key := range answer.GetKeys() {
			got = append(got, key.GetKeyId())
			if key.GetExcludeFromOidcDiscovery() {
				t.Errorf("key %s is kept from relying parties", key.GetKeyId())
			}
		}
		testutil.Check(t, "keys", want, got)
		return answer
	}
	first := fetch()
	testutil.Expect(t, first.GetRefreshHintSeconds() == 60, "refresh hint is %d s, want 60", first.GetRefreshHintSeconds())
	testutil.Expect(t, proto.Equal(first, fetch()),
		"the time changes though the keys do not: kube-apiserver would rebuild its discovery document each time")
	ring.SetVerifyOnly(nil)
	testutil.Expect(t, fetch().GetDataTimestamp().AsTime().After(first.GetDataTimestamp().AsTime()),
		"the time has not changed with the keys")
}

// broken is a signer and key source that returns the given errors.
type broken struct {
	sign func(context.Context) error
}

func (b broken) Sign(ctx context.Context, _ signing.HeaderStyle, _ string) (header, signature string, err error) {
	return "", "", b.sign(ctx)
}

func (b broken) Keys() *signing.KeySet { return signing.NewKeySet() }

// TestRefusals wants the right code, a text without anything of the payload, one audit line for
// what a client may not have, and a count.
func TestRefusals(t *testing.T) {
	t.Parallel()
	const secret = "value-of-a-claim"
	panics := func(context.Context) error { panic(secret) }
	cases := map[string]struct {
		reason  string
		change  func(*external.Config)
		payload string
		timeout time.Duration
		code    codes.Code
		outcome string
		audited bool
		told    bool // the log says what the signer said
	}{
		"not a segment": {
			reason: "no oracle for other protocols", payload: "%" + secret, code: codes.InvalidArgument, outcome: "malformed",
			audited: true,
		},
		"larger than the policy reads": {
			reason: "bounded before it is decoded", payload: strings.Repeat("A",
				70<<10), code: codes.InvalidArgument, outcome: "malformed", audited: true,
		},
		"another issuer": {
			reason: "a token for another cluster", payload: signertest.Encode(map[string]any{"iss": secret}),
			code: codes.PermissionDenied, outcome: "issuer", audited: true,
		},
		"a user": {
			reason: "only service accounts", payload: signertest.Encode(map[string]any{"iss": signertest.Issuer, "sub": secret}),
			code: codes.PermissionDenied, outcome: "subject", audited: true,
		},
		"a stranger": {
			reason: "another user of the machine", payload: signertest.Payload(0),
			change: func(c *external.Config) { c.AllowedUIDs = []uint32{uint32(os.Getuid()) + 1} },
			code:   codes.PermissionDenied, outcome: "stranger", audited: true,
		},
		"the signer fails": {
			reason: "its error may hold anything", payload: signertest.Payload(0),
			change: func(c *external.Config) { c.Signer = broken{func(context.Context) error { return errors.New(secret) }} },
			code:   codes.Internal, outcome: "error", told: true,
		},
		"the signer panics": {
			reason: "the process goes on", payload: signertest.Payload(0),
			change: func(c *external.Config) { c.Signer = broken{panics} },
			code:   codes.Internal, outcome: "error",
		},
		"the signer hangs": {
			reason: "the caller's time is its bound", payload: signertest.Payload(0), timeout: 2 * time.Second,
			change: func(c *external.Config) {
				c.Signer = broken{func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}
			},
			code: codes.DeadlineExceeded, outcome: "canceled",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := configFor(t, newRing(t))
			metrics, registry := newMetrics()
			config.Metrics = metrics
			if tc.change != nil {
				tc.change(&config)
			}
			_, logged, stop := serve(t, config)
			client := externaljwtv1.NewExternalJWTSignerClient(connect(t, config.Path).Conn())
			ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(tc.timeout, time.Minute))
			defer cancel()
			response, err := client.Sign(ctx, &externaljwtv1.SignJWTRequest{Claims: tc.payload})
			testutil.Expect(t, status.Code(err) == tc.code && response == nil, "%s: Sign returned %v, %v, want code %s", tc.reason,
				response, err,
				tc.code)
			stop() // the call has been counted and logged by now
			audit := logged()
			for _, text := range []string{secret, base64.RawURLEncoding.EncodeToString([]byte(secret))[:16]} {
				testutil.Expect(t, !strings.Contains(audit, text) || tc.told, "%s: the log repeats the payload:\n%s", tc.reason, audit)
			}
			testutil.Expect(t, !strings.Contains(status.Convert(err).Message(), secret), "%s: the caller gets %v", tc.reason, err)
			line := fmt.Sprintf(`method="Sign" uid=%d pid=%d outcome=%q`, os.Getuid(), os.Getpid(), tc.outcome)
			testutil.Expect(t, strings.Count(audit, "Refused a call") != 0 == tc.audited && (!tc.audited || strings.Contains(audit, line)),
				"%s: want an audit line with %s: %t; the log is:\n%s", tc.reason, line, tc.audited, audit)
			testutil.Check(t, tc.reason, []string{calls("Sign", tc.outcome, 1)}, testutil.Series(registry, counter))
		})
	}
}

// TestRefusalsDoNotFloodTheLog: with a wrong issuer every token of the cluster is refused.
func TestRefusalsDoNotFloodTheLog(t *testing.T) {
	t.Parallel()
	config := configFor(t, newRing(t))
	metrics, registry := newMetrics()
	config.Metrics = metrics
	_, logged, stop := serve(t, config)
	client := externaljwtv1.NewExternalJWTSignerClient(connect(t, config.Path).Conn())
	began := time.Now()
	const refusals = 200
	for range refusals {
		_, _ = client.Sign(t.Context(), &externaljwtv1.SignJWTRequest{Claims: "e30"}) // {}
	}
	most := 11 + int(time.Since(began)/time.Second)
	stop()
	lines := strings.Count(logged(), "Refused a call")
	testutil.Expect(t, lines >= 10 && lines <= most, "%d lines of %d refusals, want 10 to %d", lines, refusals, most)
	testutil.Check(t, "counted", []string{calls("Sign", "issuer", refusals)}, testutil.Series(registry, counter))
}

// TestNoKeys: all keys are revoked. kube-apiserver goes on with the keys that it has after an error and after an empty
// answer, so it gets one that nobody can sign with.
func TestNoKeys(t *testing.T) {
	t.Parallel()
	ring := newRing(t)
	config := configFor(t, ring)
	config.Keys = broken{}
	serve(t, config)
	answer := testutil.Get(connect(t, config.Path).Fetch(t.Context()))(t)
	if keys := answer.All(); len(keys) != 1 {
		t.Errorf("%d keys, want one", len(keys))
	} else if _, ours := ring.Keys().Lookup(keys[0].ID); ours {
		t.Error("a key that anybody can sign with")
	}
}

// TestRate: calls above the bound wait for a slot, one whose deadline is earlier than its slot is refused without a
// wait, and keys are answered all the while.
func TestRate(t *testing.T) {
	t.Parallel()
	config := configFor(t, newRing(t))
	config.QPS = 2
	serve(t, config)
	remote := connect(t, config.Path)
	sign := func(within time.Duration) (codes.Code, time.Duration) {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		begun := time.Now()
		_, _, err := remote.Sign(ctx, signing.JWTHeader, signertest.Payload(0))
		return status.Code(err), time.Since(begun)
	}
	begun := time.Now()
	for range 3 {
		code, _ := sign(time.Minute)
		testutil.Require(t, code == codes.OK, "a call that has time: code %s", code)
	}
	took := time.Since(begun)
	testutil.Expect(t, took >= 400*time.Millisecond, "3 signatures took %v, want at least 0.5 s: 2 at once, the next one after 0.5 s", took)
	if code, took := sign(300 * time.Millisecond); code != codes.ResourceExhausted || took > 250*time.Millisecond {
		t.Errorf("a call without time to wait: code %s after %v, want ResourceExhausted at once", code, took)
	}
	fetch(t, remote, codes.OK)
}

// TestTooLargeAMessage wants it to be refused unread.
func TestTooLargeAMessage(t *testing.T) {
	t.Parallel()
	config := configFor(t, newRing(t))
	serve(t, config)
	client := externaljwtv1.NewExternalJWTSignerClient(connect(t, config.Path).Conn())
	_, err := client.Sign(t.Context(), &externaljwtv1.SignJWTRequest{Claims: strings.Repeat("A", 10<<20)})
	testutil.Expect(t, status.Code(err) == codes.ResourceExhausted, "Sign with 10 MiB: %v, want code ResourceExhausted", err)
}

// mostCallers is the bound of the package, as who connects sees it.
const mostCallers = 16

// TestManyCallers wants the first callers to be answered, calls of further ones to be rejected,
// strangers to take nobody's place, and a caller that does not even fetch the keys to give its
// place up.
func TestManyCallers(t *testing.T) {
	t.Parallel()
	config := configFor(t, newRing(t))
	config.RefreshHint = 3 * time.Second
	metrics, registry := newMetrics()
	config.Metrics = metrics
	serve(t, config)
	first := connect(t, config.Path)
	fetch(t, first, codes.OK)
	if os.Getuid() == 0 {
		testutil.Must(t, os.Chmod(filepath.Dir(config.Path), 0o711))
		for range mostCallers {
			stranger := testutil.Get(signertest.ConnectAs(config.Path, nobody))(t)
			t.Cleanup(func() { _ = stranger.Close() })
			fetch(t, stranger, codes.PermissionDenied)
		}
	}
	for range mostCallers - 1 {
		fetch(t, connect(t, config.Path), codes.OK)
	}
	late := connect(t, config.Path)
	fetch(t, late, codes.ResourceExhausted)
	fetch(t, first, codes.OK)
	series := testutil.Series(registry, counter)
	testutil.Expect(t, slices.Contains(series, calls("FetchKeys", "connections", 1)), "one rejected call is not counted: %v", series)
	for begun := time.Now(); ; {
		fetch(t, first, codes.OK)
		_, err := late.Fetch(t.Context())
		if err == nil {
			break
		}
		testutil.Require(t, status.Code(err) == codes.ResourceExhausted && time.Since(begun) <= 10*config.RefreshHint,
			"the late caller: %v", err)
		time.Sleep(10 * time.Millisecond)
	}
}

func fetch(t *testing.T, remote *signertest.Remote, want codes.Code) {
	t.Helper()
	_, err := remote.Fetch(t.Context())
	testutil.Require(t, status.Code(err) == want, "FetchKeys: %v, want code %v", err, want)
}
