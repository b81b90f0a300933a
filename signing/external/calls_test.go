// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package external_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	externaljwtv1 "k8s.io/externaljwt/apis/v1"
	externaljwtv1alpha1 "k8s.io/externaljwt/apis/v1alpha1"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/external"
	"sa-controller-manager/signing/signertest"
)

// TestVersionsAgree wants the same answers from v1 and v1alpha1, byte for byte but for the
// signature, which varies.
func TestVersionsAgree(t *testing.T) {
	t.Parallel()
	config := configFor(t, newRing(t))
	serve(t, config)
	conn := connect(t, config.Path).Conn()
	stable, alpha := externaljwtv1.NewExternalJWTSignerClient(conn), externaljwtv1alpha1.NewExternalJWTSignerClient(conn)

	answers := map[string][2]func() (proto.Message, error){
		"Metadata": {
			func() (proto.Message, error) { return stable.Metadata(t.Context(), &externaljwtv1.MetadataRequest{}) },
			func() (proto.Message, error) {
				return alpha.Metadata(t.Context(), &externaljwtv1alpha1.MetadataRequest{})
			},
		},
		"FetchKeys": {
			func() (proto.Message, error) { return stable.FetchKeys(t.Context(), &externaljwtv1.FetchKeysRequest{}) },
			func() (proto.Message, error) {
				return alpha.FetchKeys(t.Context(), &externaljwtv1alpha1.FetchKeysRequest{})
			},
		},
		"Sign": {
			func() (proto.Message, error) {
				response, err := stable.Sign(t.Context(), &externaljwtv1.SignJWTRequest{Claims: signertest.Payload(0)})
				response.Signature = ""
				return response, err
			},
			func() (proto.Message, error) {
				response, err := alpha.Sign(t.Context(), &externaljwtv1alpha1.SignJWTRequest{Claims: signertest.Payload(0)})
				response.Signature = ""
				return response, err
			},
		},
	}
	for name, ask := range answers {
		var sent [2]string
		for i := range ask {
			answer, err := ask[i]()
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			// The members have the same numbers, so the encoding is the same.
			encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(answer)
			if err != nil {
				t.Fatal(err)
			}
			sent[i] = string(encoded)
		}
		if sent[0] == "" || sent[0] != sent[1] {
			t.Errorf("%s: v1 answers %q, v1alpha1 %q", name, sent[0], sent[1])
		}
	}
}

func TestAnswersOfTheServer(t *testing.T) {
	t.Parallel()
	ring := newRing(t)
	config := configFor(t, ring)
	serve(t, config)
	client := externaljwtv1.NewExternalJWTSignerClient(connect(t, config.Path).Conn())

	metadata, err := client.Metadata(t.Context(), &externaljwtv1.MetadataRequest{})
	if err != nil || metadata.GetMaxTokenExpirationSeconds() != 24*60*60 {
		t.Errorf("Metadata answers %v, %v, want 86400 s", metadata, err)
	}
	first, err := client.FetchKeys(t.Context(), &externaljwtv1.FetchKeysRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(idsOf(ring), sentIDs(first)); diff != "" {
		t.Errorf("keys: -want +got:\n%s", diff)
	}
	if first.GetRefreshHintSeconds() != 60 {
		t.Errorf("refresh hint is %d s, want 60", first.GetRefreshHintSeconds())
	}
	again, err := client.FetchKeys(t.Context(), &externaljwtv1.FetchKeysRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(first, again) {
		t.Error("the time changes though the keys do not: kube-apiserver would rebuild its discovery document each time")
	}
	ring.SetVerifyOnly(nil)
	changed, err := client.FetchKeys(t.Context(), &externaljwtv1.FetchKeysRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(idsOf(ring), sentIDs(changed)); diff != "" {
		t.Errorf("keys after a change: -want +got:\n%s", diff)
	}
	if !changed.GetDataTimestamp().AsTime().After(first.GetDataTimestamp().AsTime()) {
		t.Error("the time has not changed with the keys")
	}
	for _, key := range changed.GetKeys() {
		if key.GetExcludeFromOidcDiscovery() {
			t.Errorf("key %s is kept from relying parties", key.GetKeyId())
		}
	}
}

func idsOf(source signing.KeySource) []string {
	var ids []string
	for _, key := range source.Keys().All() {
		ids = append(ids, key.ID)
	}
	return ids
}

func sentIDs(response *externaljwtv1.FetchKeysResponse) []string {
	var ids []string
	for _, key := range response.GetKeys() {
		ids = append(ids, key.GetKeyId())
	}
	return ids
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
// what somebody may not have, and a count.
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
			reason: "no oracle for other protocols", payload: "%" + secret, code: codes.InvalidArgument, outcome: "malformed", audited: true,
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
			ctx := t.Context()
			if tc.timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, tc.timeout)
				defer cancel()
			}
			response, err := client.Sign(ctx, &externaljwtv1.SignJWTRequest{Claims: tc.payload})
			if status.Code(err) != tc.code || response != nil {
				t.Errorf("%s: Sign returned %v, %v, want code %s", tc.reason, response, err, tc.code)
			}
			stop() // the call has been counted and logged by now
			audit := logged()
			for _, text := range []string{secret, base64.RawURLEncoding.EncodeToString([]byte(secret))[:16]} {
				if strings.Contains(audit, text) && !tc.told {
					t.Errorf("%s: the log repeats the payload:\n%s", tc.reason, audit)
				}
			}
			if strings.Contains(status.Convert(err).Message(), secret) {
				t.Errorf("%s: the caller gets %v", tc.reason, err)
			}
			line := fmt.Sprintf(`"method"="Sign" "uid"=%d "pid"=%d "outcome"=%q`, os.Getuid(), os.Getpid(), tc.outcome)
			if got := strings.Count(audit, "Refused a call"); got != 0 != tc.audited || tc.audited && !strings.Contains(audit, line) {
				t.Errorf("%s: want an audit line with %s: %t; the log is:\n%s", tc.reason, line, tc.audited, audit)
			}
			if got := counted(t, registry)["Sign "+tc.outcome]; got != 1 {
				t.Errorf("%s: outcome %q is counted %v times: %v", tc.reason, tc.outcome, got, counted(t, registry))
			}
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
	const calls = 200
	for range calls {
		_, _ = client.Sign(t.Context(), &externaljwtv1.SignJWTRequest{Claims: "e30"}) // {}
	}
	most := 11 + int(time.Since(began)/time.Second)
	stop()
	if lines := strings.Count(logged(), "Refused a call"); lines < 10 || lines > most {
		t.Errorf("%d lines of %d refusals, want 10 to %d", lines, calls, most)
	}
	var refused float64
	for _, n := range counted(t, registry) {
		refused += n
	}
	if refused != calls {
		t.Errorf("%v calls are counted, want %d", refused, calls)
	}
}

// TestNoKeys wants an error that kube-apiserver tries again after, not an empty answer.
func TestNoKeys(t *testing.T) {
	t.Parallel()
	config := configFor(t, newRing(t))
	config.Keys = broken{}
	serve(t, config)
	client := externaljwtv1.NewExternalJWTSignerClient(connect(t, config.Path).Conn())
	if _, err := client.FetchKeys(t.Context(), &externaljwtv1.FetchKeysRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("FetchKeys without keys: %v, want code Unavailable", err)
	}
}

// TestRate wants more calls than the bound to wait for their turn.
func TestRate(t *testing.T) {
	t.Parallel()
	config := configFor(t, newRing(t))
	config.QPS = 10
	serve(t, config)
	client := externaljwtv1.NewExternalJWTSignerClient(connect(t, config.Path).Conn())
	begun := time.Now()
	for range 15 {
		if _, err := client.Sign(t.Context(), &externaljwtv1.SignJWTRequest{Claims: signertest.Payload(0)}); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(begun); took < 400*time.Millisecond {
		t.Errorf("15 signatures took %v, want at least 0.5 s: 10 at once, the rest one every 0.1 s", took)
	}
}

// TestNoTimeToWait wants a call whose time would be up before its turn to be told so at once, and
// keys to be had all the while.
func TestNoTimeToWait(t *testing.T) {
	t.Parallel()
	config := configFor(t, newRing(t))
	config.QPS = 0.001
	serve(t, config)
	client := externaljwtv1.NewExternalJWTSignerClient(connect(t, config.Path).Conn())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := client.Sign(ctx, &externaljwtv1.SignJWTRequest{Claims: signertest.Payload(0)}); err != nil {
		t.Fatal(err)
	}
	_, err := client.Sign(ctx, &externaljwtv1.SignJWTRequest{Claims: signertest.Payload(0)})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a second call: %v, want code ResourceExhausted", err)
	}
	if _, err := client.FetchKeys(ctx, &externaljwtv1.FetchKeysRequest{}); err != nil {
		t.Errorf("FetchKeys waits for signatures: %v", err)
	}
}

// TestTooLargeAMessage wants it to be refused unread.
func TestTooLargeAMessage(t *testing.T) {
	t.Parallel()
	config := configFor(t, newRing(t))
	serve(t, config)
	client := externaljwtv1.NewExternalJWTSignerClient(connect(t, config.Path).Conn())
	_, err := client.Sign(t.Context(), &externaljwtv1.SignJWTRequest{Claims: strings.Repeat("A", 10<<20)})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("Sign with 10 MiB: %v, want code ResourceExhausted", err)
	}
}
