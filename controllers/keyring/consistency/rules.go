// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package consistency

import (
	"fmt"
	"slices"
	"time"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/ring"
)

// MayChange returns a *ring.Refusal unless own is the newest ring of the live hosts but those of without. host is
// ours.
func (p Published) MayChange(own ring.State, host string, without []string, now time.Time) error {
	for _, line := range p.Others(host, now) {
		theirs := fmt.Sprintf("that of host %s (generation %d)", line.Host, line.Generation)
		switch is := relate(own, line); {
		case slices.Contains(without, line.Host):
		case is == newer:
			return &ring.Refusal{
				Reason: fmt.Sprintf("the ring (generation %d) is older than %s", own.Generation, theirs),
				Remedy: "bring that one here (keys import)" + line.orGone(),
			}
		case is == apart:
			return &ring.Refusal{
				Reason: fmt.Sprintf("the ring (generation %d) and %s are forked", own.Generation, theirs),
				Remedy: "bring that one here: keys import --join-fork" + line.orGone(),
			}
		}
	}
	return nil
}

func (l Line) orGone() string {
	return fmt.Sprintf(", or, if that host is gone for good, give --without-host=%s", l.Host)
}

// MayUse returns a *ring.Refusal unless own is the newest ring and every live host but those of without
// has a key and can sign with it: then each may begin to use it at its own time. host is ours.
func (p Published) MayUse(own ring.State, key ring.Key, host string, without []string, now time.Time) error {
	if err := p.MayChange(own, host, without, now); err != nil {
		return err
	}
	if p.Revoked(key.PublicKey) {
		return &ring.Refusal{
			Reason: fmt.Sprintf("the %s key %s was revoked on another host", key.Role, key.ID),
			Remedy: "replace the next key: keys next",
		}
	}
	for _, line := range p.Live(now) {
		if slices.Contains(without, line.Host) {
			continue
		}
		switch {
		case line.Keys[key.ID] == "":
			return &ring.Refusal{
				Reason: fmt.Sprintf("host %s does not have the %s key %s", line.Host, key.Role, key.ID),
				Remedy: "bring the ring there (keys import)" + line.orGone(), Later: true,
			}
		case !slices.Contains(line.Signs, key.ID):
			return &ring.Refusal{
				Reason: fmt.Sprintf("host %s cannot sign with the %s key %s", line.Host, key.Role, key.ID),
				Remedy: "see key-backends in its /readyz?verbose" + line.orGone(), Later: true,
			}
		}
	}
	return nil
}

// MayWithdraw returns a *ring.Refusal if a next key has signed on some host: there are tokens of it. A
// revoked one may go.
func (p Published) MayWithdraw(key ring.Key) error {
	if p.Revoked(key.PublicKey) {
		return nil
	}
	for _, line := range p.Lines {
		if role := line.Keys[key.ID]; role == signing.Active || role == signing.Retired || line.SignsWith == key.ID {
			return &ring.Refusal{
				Reason: fmt.Sprintf("the next key %s has signed on host %s", key.ID, line.Host),
				Remedy: "bring the ring of that host here (keys import) or, if that host is gone for good: keys rotate --without-host=" + line.Host,
			}
		}
	}
	return nil
}

// Cached returns a *ring.Refusal while a cache may have a copy of the key set without the next key: for
// cacheAge after the last host has begun to publish it.
func (p Published) Cached(own ring.State, without []string, cacheAge time.Duration, now time.Time) error {
	next, _ := own.Next()
	refusal := &ring.Refusal{
		Reason: fmt.Sprintf("key %s is not published by any live host", next.ID), Later: true,
		Remedy: "start a manager with this --service-account-key-ring",
		Breaks: "every verifier with a copy of the key set from before refuses new tokens until it renews the copy",
	}
	var last Line
	for _, line := range p.Live(now) {
		switch {
		case slices.Contains(without, line.Host):
		case line.NextSince.IsZero():
			refusal.Reason = fmt.Sprintf("key %s is not published by host %s", next.ID, line.Host)
			refusal.Remedy = "see published-files in its /readyz?verbose" + line.orGone()
			return refusal
		case line.NextSince.After(last.NextSince):
			last = line
		}
	}
	if last.Host == "" {
		return refusal
	}
	until := last.NextSince.Add(cacheAge)
	if !until.After(now) {
		return nil
	}
	refusal.Until, refusal.Later, refusal.Remedy = until, false, "wait until then, or give --wait"
	refusal.Reason = fmt.Sprintf("copies of the key set may be without key %s until %s: host %s publishes it since %s, and a copy may be %s old",
		next.ID, clockTime(until), last.Host, clockTime(last.NextSince), cacheAge)
	return refusal
}

// Problem is one of the published rings.
type Problem struct{ Code, Message, Remedy string }

// settled is how long a host may be late before that is a problem.
const settled = 24 * time.Hour

// Problems finds live hosts that lack a key of the newest ring: without its active key kube-apiserver on
// that host may refuse tokens now, and without its next key the next rotation is refused.
func (p Published) Problems(now time.Time) []Problem {
	live := p.Live(now)
	var newest Line
	for _, line := range live {
		if line.Generation > newest.Generation {
			newest = line
		}
	}
	var problems []Problem
	lack := func(code, id, what string) {
		for _, line := range live {
			if id != "" && line.Keys[id] == "" {
				problems = append(problems, Problem{code, fmt.Sprintf("host %s does not have key %s, %s on host %s", line.Host, id, what, newest.Host),
					"bring the ring of that host there (keys import)"})
			}
		}
	}
	lack("host-lacks-active-key", newest.key(signing.Active), "which signs")
	if now.Sub(newest.Changed) > settled {
		lack("host-lacks-next-key", newest.key(signing.Next), "which is next")
	}
	if newest.Host != "" && newest.key(signing.Next) == "" {
		problems = append(problems, Problem{"no-next-key", "the key ring has no next key, so keys rotate is refused", "keys next"})
	}
	return problems
}

func clockTime(at time.Time) string { return at.UTC().Format(time.RFC3339) }
