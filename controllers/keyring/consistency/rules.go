// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package consistency

import (
	"fmt"
	"maps"
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

// Cached returns a *ring.Refusal while a cache may have a copy of the key set without the next key. It names
// what lasts longest.
func (p Published) Cached(own ring.State, without []string, cacheAge time.Duration, now time.Time) error {
	next, _ := own.Next()
	since := map[string]time.Time{}
	ages := map[string]time.Duration{}
	for _, line := range p.Live(now) {
		if !slices.Contains(without, line.Host) {
			since["host "+line.Host] = line.NextSince
		}
	}
	if len(since) == 0 {
		since["any live host"] = time.Time{}
	}
	for name, place := range p.Places {
		since[name] = place.Keys[next.ID]
		ages[name] = time.Duration(place.CacheSeconds) * time.Second
	}
	last := &ring.Refusal{Breaks: "every verifier with a copy of the key set from before refuses new tokens until it renews the copy"}
	for _, name := range slices.Sorted(maps.Keys(since)) {
		at, age := since[name], max(cacheAge, ages[name])
		switch place := p.Places[name]; {
		case place.Problem != "":
			last.Reason = name + ": " + place.Problem
			last.Remedy = "have the keys of the ring published there"
		case at.IsZero() && place.Manual:
			last.Reason = fmt.Sprintf("nobody has confirmed that key %s is published at %s", next.ID, name)
			last.Remedy = fmt.Sprintf("publish it there, and then: keys publish confirm %s --key-id=%s", name, next.ID)
		case at.IsZero():
			last.Reason = fmt.Sprintf("key %s is not shown at %s", next.ID, name)
			last.Remedy = "start a manager with this --service-account-key-ring, or have its keys published there"
		case at.Add(age).After(now) && at.Add(age).After(last.Until):
			last.Until = at.Add(age)
			last.Reason = fmt.Sprintf("copies of the key set may be without key %s until %s: %s shows it since %s, and a copy may be %s old",
				next.ID, clockTime(last.Until), name, clockTime(at), age)
			last.Remedy = "wait until then, or give --wait"
			continue
		default:
			continue
		}
		last.Until, last.Later = time.Time{}, true
		return last
	}
	if last.Reason == "" {
		return nil
	}
	return last
}

// MayLack returns a *ring.Refusal while a place lacks the active key: verifiers that read the keys there
// need a retired one.
func (p Published) MayLack(own ring.State) error {
	active := own.Active().ID
	for _, name := range slices.Sorted(maps.Keys(p.Places)) {
		if p.Places[name].Keys[active].IsZero() {
			return &ring.Refusal{
				Reason: fmt.Sprintf("key %s, which signs, is not shown at %s", active, name), Later: true,
				Remedy: "have the keys of the ring published there first, or: keys publish forget " + name,
			}
		}
	}
	return nil
}

// StillAccept says how long relying parties go on accepting revoked keys.
func (p Published) StillAccept() (notes []string) {
	for _, name := range slices.Sorted(maps.Keys(p.Places)) {
		switch place := p.Places[name]; {
		case place.Manual:
			notes = append(notes, "relying parties of "+name+" accept them until you publish the keys there again")
		case name != AtAPIServer || place.CacheSeconds > 0:
			notes = append(notes, fmt.Sprintf("relying parties of %s accept them for up to %s once they are not published there any more",
				name, time.Duration(place.CacheSeconds)*time.Second))
		}
	}
	return append(notes, "what caches the keys of kube-apiserver accepts them for up to an hour, "+
		"and kube-apiserver a token that it has just seen for 10 s")
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
