// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keyprobe

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"sa-controller-manager/internal/testutil"
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
				a := start(t, server)
				if err := errors.Join(a.MaySign(), a.MayFill()); err != nil || !a.Confirmed(keys.old.ID()) {
					t.Fatalf("at the start: %v", err)
				}
				server.set(func(s *apiserver) { s.broken = errors.New("connection refused") })
				time.Sleep(time.Hour)
				synctest.Wait()
				if err := errors.Join(a.MaySign(), a.MayFill()); err != nil || !a.Confirmed(keys.old.ID()) {
					t.Errorf("after an hour without an answer the last one does not count: %v", err)
				}
				server.set(func(s *apiserver) { s.broken = nil })
				time.Sleep(maxBackoff) // it is proved again
				server.set(func(s *apiserver) { clear(s.known) })
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
				time.Sleep(maxBackoff)
				synctest.Wait()
				if err := a.MayFill(); err != nil {
					t.Errorf("once it is accepted again: %v", err)
				}
				testutil.Check(t, "calls of Proven", 2, a.proven)
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
			})
		})
	}
}

func TestBackOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := knowing(testKeys().old)
		a := start(t, server)

		a.give(a.next)
		time.Sleep(100 * time.Second)
		a.give(a.third) // another key starts with no backoff
		time.Sleep(4 * time.Second)
		server.set(func(s *apiserver) { s.broken = errors.New("connection refused") }) // and so does another reason
		time.Sleep(11 * time.Second)

		testutil.Check(t, "probes", []string{
			"OLD at 0s", "NEXT at 0s", "NEXT at 1s", "NEXT at 3s", "NEXT at 7s", "NEXT at 15s", "NEXT at 31s", "NEXT at 1m1s", "NEXT at 1m31s",
			"THIRD at 1m40s", "THIRD at 1m41s", "THIRD at 1m43s", "THIRD at 1m47s", "THIRD at 1m48s", "THIRD at 1m50s", "THIRD at 1m54s",
		}, a.reviewed())
	})
}

// A connection that is reset has another local port in its error each time.
func TestBackOffGrowsWhateverTheText(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := knowing()
		server.set(func(s *apiserver) {
			s.reviewing = func(string) {
				s.broken = fmt.Errorf("read tcp 127.0.0.1:%d->127.0.0.1:6443: connection reset by peer", 40000+len(s.reviews))
			}
		})
		a := start(t, server)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		testutil.Check(t, "probes", []string{"OLD at 0s", "OLD at 1s", "OLD at 3s", "OLD at 7s"}, a.reviewed())
	})
}
