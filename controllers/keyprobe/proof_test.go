// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keyprobe

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
)

// TestARefusalTakesTheProofBack: a kube-apiserver that was restarted with other keys refuses what it had
// accepted, and accepts it again once it has the key.
func TestARefusalTakesTheProofBack(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		notice func(*trial)
	}{
		"ByTime":      {"nothing else shows it", func(*trial) { time.Sleep(provePeriod) }},
		"ByReconnect": {"the watches begin again", func(a *trial) { a.Reconnected() }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				keys := testKeys()
				server := knowing(keys.old)
				proven := 0
				a := start(t, server, func(c *Config) { c.Proven = func() { proven++ } })
				if err := errors.Join(a.MaySign(), a.MayFill()); err != nil || !a.Confirmed(keys.old.ID()) {
					t.Fatalf("at the start: %v", err)
				}
				server.set(func(s *apiserver) { s.known = map[string]signing.PublicKey{} })
				tc.notice(a)
				synctest.Wait()
				for what, err := range map[string]error{"MaySign": a.MaySign(), "MayFill": a.MayFill()} {
					if err == nil || a.named(err.Error()) != "kube-apiserver refuses tokens of key OLD" {
						t.Errorf("%s: %s after the refusal: %v", tc.reason, what, err)
					}
				}
				if a.Confirmed(keys.old.ID()) {
					t.Error("a refused key is confirmed")
				}
				testutil.Check(t, "status", "key OLD signs; not confirmed by kube-apiserver: kube-apiserver refuses its tokens: [invalid bearer token]",
					a.named(a.Status()))
				server.learn(keys.old)
				time.Sleep(firstBackoff)
				synctest.Wait()
				if err := a.MayFill(); err != nil {
					t.Errorf("once it is accepted again: %v", err)
				}
				testutil.Check(t, "calls of Proven", 2, proven)
			})
		})
	}
}

// TestTheFirstFillWaits: no token without an end is signed before the first answer, as long as there can
// be one. Other tokens do not wait.
func TestTheFirstFillWaits(t *testing.T) {
	t.Parallel()
	down := errors.New("connection refused")
	forbidden := apierrors.NewForbidden(authenticationv1.Resource("tokenreviews"), "", errors.New("no rule"))
	for name, tc := range map[string]struct {
		reason string
		broken error
		issuer string
		early  string // why not within 30 s, "" if it may
		late   string
	}{
		"Accepted":   {reason: "the usual case"},
		"Down":       {"a cluster without an answer must not stand still", down, "", "has not said yet whether it accepts key OLD", ""},
		"Forbidden":  {"a mistake that an operator can correct", forbidden, "", "may not ask kube-apiserver", "may not ask kube-apiserver"},
		"OtherIssue": {"tokens of Secrets have another issuer anyhow", nil, "https://wrong.example.com", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := knowing(testKeys().old)
				server.set(func(s *apiserver) { s.broken = tc.broken })
				a := start(t, server, func(c *Config) {
					if tc.issuer != "" {
						c.Issuer = tc.issuer
					}
				})
				check := func(when, want string) {
					t.Helper()
					if err := a.MaySign(); err != nil {
						t.Errorf("%s: MaySign %s: %v", tc.reason, when, err)
					}
					switch err := a.MayFill(); {
					case err == nil && want == "":
					case err == nil || want == "" || !strings.Contains(a.named(err.Error()), want):
						t.Errorf("%s: MayFill %s: %v, want %q", tc.reason, when, err, want)
					}
				}
				check("at once", tc.early)
				time.Sleep(firstAnswer - time.Second)
				synctest.Wait()
				check("before the time is over", tc.early)
				time.Sleep(2 * time.Second)
				synctest.Wait()
				check("afterwards", tc.late)

				server.set(func(s *apiserver) { s.broken, s.known = nil, map[string]signing.PublicKey{} })
				time.Sleep(provePeriod)
				synctest.Wait()
				if err := a.MayFill(); err == nil {
					t.Error("it fills although the key was refused")
				}
			})
		})
	}
}

// TestNoAnswerChangesNothing: while kube-apiserver is away, its last answer counts.
func TestNoAnswerChangesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := knowing(testKeys().old)
		a := start(t, server)
		server.set(func(s *apiserver) { s.broken = errors.New("connection refused") })
		time.Sleep(time.Hour)
		synctest.Wait()
		if err := errors.Join(a.MaySign(), a.MayFill()); err != nil || !a.Confirmed(testKeys().old.ID()) {
			t.Errorf("after an hour without an answer: %v", err)
		}
	})
}

// TestTheAccountOfTheProofIsGone: a token of a dead account is refused whatever its key.
func TestTheAccountOfTheProofIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := knowing(testKeys().old)
		a := start(t, server)
		server.set(func(s *apiserver) { s.reviewing = func(string) { s.recreate() } })
		a.Reconnected()
		synctest.Wait()
		if err := a.MayFill(); err != nil {
			t.Errorf("the key is refused because of an account: %v", err)
		}
	})
}
