// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"sa-controller-manager/controllers/keyring/ring"
	"sa-controller-manager/internal/check"
	"sa-controller-manager/signing"
)

// File is the ring file of a host, as it was just read.
type File struct {
	// Host is its name, "" to ask about other hosts alone.
	Host  string
	State ring.State
	// Err is why the file cannot be read.
	Err error
	// Process is set for the file of a process with the name Writer, which signs with SignsWith, "" for none.
	Process           bool
	Writer, SignsWith string
}

// Standing is how a ring file stands to what is published: the facts.
type Standing struct {
	Facts []check.KeyFact

	file   File
	p      Published
	newest Entry
	fallen check.KeyFact // the one of Fallen
}

// Stand compares a ring file with all published rings, also with that of its own host, and the hosts with
// each other. use are the keys that will sign, or the next one. It reads no clock. Package check says what
// each fact means:
//
//	this host's file lacks what this host has published    ring-restored; ring-lost if it cannot be read
//	another host's ring has come from the file              ring-late
//	neither has come from the other                         ring-forked
//	and the file lacks the key that signs there             ring-lacks-active-key
//	a newer ring lacks the key that signs here              ring-signs-dropped-key
//	revocations have left no key that signs                 ring-revoked
//	the file has a revoked key                              revoked-key-in-file
//	the entry of a host is of another file than its last    host-restored
//	an entry is none that this program writes               ring-unreadable
//	a kube-apiserver with our signer has no entry           host-without-ring
//	a host's file lacks the active key, or one of use       host-lacks-active-key, host-lacks-next-key
//	it has it, and its process cannot sign with it          active-key-away, host-cannot-sign
func Stand(file File, p Published, use ...ring.Key) *Standing {
	s := &Standing{file: file, p: p}
	s.newest, _ = p.Entry(file.Host)
	if file.Host != "" && file.Err == nil {
		s.newest = EntryOf(file.State)
		s.newest.Host = file.Host
	}
	for _, entry := range p.Entries {
		if entry.signs() && (s.newest.version() == "" || s.beats(entry, s.newest)) {
			s.newest = entry
		}
	}
	if file.Host != "" {
		s.ownFile()
	}
	s.hosts(use)
	return s
}

// beats reports whether a ring stays in use where it differs from another one, which then signs nothing without its key. Of two
// that are forked, or of two clusters, the one that more hosts have does; of two equal ones that have come from one, the
// one that was changed more often.
func (s *Standing) beats(entry, other Entry) bool {
	state := ring.State{History: other.History}
	if is := relate(state, entry); is != apart {
		return is == newer
	}
	theirs, ours := s.side(entry.History), s.side(other.History)
	return theirs > ours || theirs == ours && entry.Generation > other.Generation && slices.ContainsFunc(entry.History, state.Knows)
}

// side counts the hosts whose rings and the one with this history have come from one another. One has it, published or not.
func (s *Standing) side(history []string) (hosts int) {
	for _, entry := range s.p.Entries {
		if entry.signs() && relate(ring.State{History: history}, entry) != apart {
			hosts++
		}
	}
	return max(hosts, 1)
}

func (s *Standing) add(code string, args check.KeyArgs) check.KeyFact {
	args.Our = s.file.State.Generation
	fact := check.Key(code, args)
	if args.Host == "" || slices.Contains(check.RingCodes(), code) {
		fact.Finding.Host = s.file.Host
	}
	s.Facts = append(s.Facts, fact)
	return fact
}

// ownFile compares the file with every entry.
func (s *Standing) ownFile() {
	own, known := s.p.Entry(s.file.Host)
	known = known && s.mine(own)
	state := s.file.State
	switch {
	case s.file.Err != nil && known:
		s.fallen = s.add(check.RingLost, check.KeyArgs{Their: own.Generation, Why: s.file.Err.Error(), Way: s.wayBack()})
	case s.file.Err != nil:
	case known && relate(state, own) != older:
		s.fallen = s.add(check.RingRestored, check.KeyArgs{Their: own.Generation, Way: s.wayBack()})
	}
	fallen := s.fallen.Code != ""
	for _, entry := range s.p.Entries {
		if s.file.Err != nil || entry.version() == "" {
			continue
		}
		is, yields := relate(state, entry), s.beats(entry, EntryOf(state))
		args := check.KeyArgs{Host: entry.Host, Their: entry.Generation, Key: entry.active(s.p), Way: s.together(is, entry, yields)}
		switch other := !s.mine(entry); {
		case is == older:
			continue
		case other && !fallen && is == newer && entry.File != "":
			s.add(check.HostRestored, args) // the newer ring is not there any more
			s.Facts[len(s.Facts)-1].Blocks |= check.Changes | check.Makes
		case other && !fallen && is == newer:
			s.add(check.RingLate, args)
		case other && !fallen:
			s.add(check.RingForked, args)
		}
		if _, ok := state.Key(args.Key); !ok && args.Key != "" && !fallen {
			s.add(check.RingMissing, args)
		}
		if signs := s.file.SignsWith; s.file.Process && signs != "" && entry.Keys[signs] == "" && yields {
			if args.Key = signs; fallen {
				args.Way = s.wayBack()
			}
			s.add(check.RingDropped, args)
		}
	}
	for _, key := range state.Keys {
		if ring.Union(s.p.Removed, state.Revoked).Has(key.PublicKey) {
			s.add(check.RevokedInFile, check.KeyArgs{Key: key.ID})
		}
	}
	if s.file.Process && s.file.SignsWith == "" {
		s.add(check.RingRevoked, check.KeyArgs{Key: state.Active().ID})
	}
}

// together says how this host and that of an entry get the same ring. Of two that are forked the one that stays in use takes the
// keys of the other. One of another cluster goes away: with its keys every kube-apiserver would accept the tokens of that.
func (s *Standing) together(is relation, entry Entry, yields bool) string {
	alike := func(key ring.Key) bool { return entry.Keys[key.ID] != "" }
	on, other := s.file.Host, entry.Host
	if yields {
		on, other = other, on
	}
	switch state := s.file.State; {
	case is == newer:
		return "bring that one here (keys import)"
	case slices.ContainsFunc(entry.History, state.Knows) || slices.ContainsFunc(state.Keys, alike):
		return fmt.Sprintf("on host %s take the keys of that of host %[2]s (keys import --join-fork), then bring the result to %[2]s", on,
			other)
	}
	return fmt.Sprintf("one is of another cluster; if that of host %[2]s is: stop our process there, move the file away, keys forget "+
		"%[2]s, and bring the ring of host %[1]s there (keys import)", on, other)
}

// mine reports whether the entry is of this file. One of another process of this host may be of another file, such as
// that of a volume that the kubelet has updated first.
func (s *Standing) mine(entry Entry) bool {
	return entry.Host == s.file.Host && (!s.file.Process || entry.Writer == s.file.Writer)
}

// wayBack says how a host gets the ring back that it has used.
func (s *Standing) wayBack() string {
	if host := s.Holder(); host != "" {
		return fmt.Sprintf("bring the ring of host %s here (keys import)", host)
	}
	return "no other host has it: put the newest copy back (keys import), such as the file beside it that ends with .previous; if there " +
		"is none, keys import --accept-older of a copy, or of the file itself, makes that the newest"
}

// Holder returns the other hosts that have the ring that this one has used, "" if there is none.
func (s *Standing) Holder() string {
	own, _ := s.p.Entry(s.file.Host)
	var hosts []string
	for _, entry := range s.p.Entries {
		if entry.Host != own.Host && entry.File == "" && slices.Contains(entry.History, own.version()) {
			hosts = append(hosts, entry.Host)
		}
	}
	return strings.Join(hosts, " or ")
}

// hosts finds what keeps a host from following the newest ring.
func (s *Standing) hosts(use []ring.Key) {
	active, signers := s.newest.active(s.p), false
	if next := s.newest.key(signing.Next); len(use) == 0 && next != "" {
		use = []ring.Key{{Key: signing.PublicKey{ID: next}.As(signing.Next)}}
	}
	for _, entry := range s.p.Entries {
		args := check.KeyArgs{Host: entry.Host, Key: active, Other: s.newest.Host}
		signers = signers || entry.Signer
		switch {
		case entry.version() == "":
			args.Why = "another release wrote that of host " + entry.Host
			s.add(check.RingUnreadable, args)
			continue
		case entry.File != "" && entry.Host != s.file.Host:
			s.add(check.HostRestored, args)
		}
		if entry.File != "" {
			continue // nothing else can be done about it before
		}
		if active != "" && entry.Keys[active] == "" && entry.Host != s.file.Host {
			s.add(check.HostLacksActiveKey, args)
		}
		if away, ok := entry.Away[active]; ok {
			args.Why = away.Reason
			s.add(check.ActiveKeyAway, args)
		}
		for _, key := range use {
			args.Key, args.Role, args.Why = key.ID, string(key.Role), entry.Away[key.ID].Reason
			switch {
			case entry.Keys[key.ID] == "":
				s.add(check.HostLacksKey, args)
			case !slices.Contains(entry.Signs, key.ID) && key.Role != signing.Active:
				s.add(check.HostCannotSign, args)
			}
		}
	}
	for _, host := range s.p.APIServers() {
		if _, known := s.p.Entry(host); signers && !known {
			s.add(check.HostWithoutRing, check.KeyArgs{Host: host})
		}
	}
	if s.newest.Generation > 0 && s.newest.key(signing.Next) == "" {
		s.add(check.NoNextKey, check.KeyArgs{})
	}
}

// Refuses returns a *ring.Refusal for the first fact that blocks something, unless that is about a host of
// without.
func (s *Standing) Refuses(what check.Blocks, without ...string) error {
	for _, fact := range s.Facts {
		if fact.Blocks&what != 0 && (fact.Host == "" || !slices.Contains(without, fact.Host)) {
			return &ring.Refusal{Reason: fact.Message, Remedy: fact.Remedy, Later: fact.Blocks&check.Later != 0}
		}
	}
	return nil
}

// Worst returns the worst fact about the file of this host, ok is false if there is none.
func (s *Standing) Worst() (worst check.KeyFact, ok bool) {
	for _, fact := range s.Facts {
		if check.RingWorse(fact.Code, worst.Code) {
			worst, ok = fact, true
		}
	}
	return worst, ok
}

// Note says how the file of this host stands.
func (s *Standing) Note() string {
	if worst, found := s.Worst(); found {
		return worst.Message
	}
	return fmt.Sprintf("the key ring of this host (generation %d, version %s) is the one that is published, and no other host has a "+
		"newer one", s.file.State.Generation, s.file.State.Version())
}

// Findings returns the facts that the user has to act on. A copy of a ring with a new next key has a day to arrive, and
// the process of this host reads its file by itself.
func (s *Standing) Findings(now time.Time) []check.Finding {
	var findings []check.Finding
	lately := now.Sub(s.newest.Changed).Abs() <= ring.Settled // the clock of the host that changed it may be ahead
	for _, fact := range s.Facts {
		code := fact.Code
		arrives := lately || fact.Host == s.file.Host
		if code == check.HostCannotSign || arrives && code == check.HostLacksKey {
			continue
		}
		if !slices.ContainsFunc(findings, func(f check.Finding) bool { return f.Message == fact.Message }) {
			findings = append(findings, fact.Finding)
		}
	}
	return findings
}

// Active returns the key that the newest ring signs with, "" if it has none.
func (s *Standing) Active() string { return s.newest.active(s.p) }

// Has reports whether the newest ring has a key. kube-apiserver need not accept any other, and must accept none of another cluster.
func (s *Standing) Has(id string) bool { return s.newest.Keys[id] != "" }

// maxForks is how many rings a message names.
const maxForks = 5

// Forks names hosts, and the keys that they sign with, whose rings have not come from one another, "" if all have.
func (s *Standing) Forks() string {
	forks := []string{s.newest.Host + ": " + s.Active()}
	for _, entry := range s.p.Entries {
		if signs := entry.active(s.p); signs != "" && entry.Host != s.newest.Host && !slices.Contains(s.newest.History, entry.version()) {
			forks = append(forks, entry.Host+": "+signs)
		}
	}
	if len(forks) > maxForks {
		forks = append(forks[:maxForks], fmt.Sprintf("and %d more", len(forks)-maxForks))
	}
	if len(forks) == 1 {
		return ""
	}
	return strings.Join(forks, ", ")
}

// Strayed reports whether Active is of the file of this host alone, which has not come from what the host has published, and returns
// the key that signs by that, "" for none.
func (s *Standing) Strayed() (signs string, strayed bool) {
	own, known := s.p.Entry(s.file.Host)
	return own.active(s.p), known && s.newest.Host == own.Host && !slices.Contains(s.newest.History, own.version())
}

// Follows reports whether the file has come from a ring that is published, if any is.
func (s *Standing) Follows() bool {
	follows := func(entry Entry) bool { return entry.version() != "" && relate(s.file.State, entry) == older }
	return len(s.p.Entries) == 0 || slices.ContainsFunc(s.p.Entries, follows)
}

// ByRevocation reports whether Active signs because another key was revoked, and whether the newest ring itself says so
// for more than a day: then the same command again may be about another leak. A time that has not come yet is of a clock
// that is ahead, and says no such thing.
func (s *Standing) ByRevocation(now time.Time) (signs, long bool) {
	since, followed := s.newest.ByRevocation, s.Active() == s.newest.key(signing.Active)
	return !followed || !since.IsZero(), followed && !since.IsZero() && now.Sub(since) > ring.Settled
}

// Fallen returns the fact that the file is not the ring that this host has used, nor a newer one.
func (s *Standing) Fallen() (fact check.KeyFact, fallen bool) { return s.fallen, s.fallen.Code != "" }

// relation is how a published ring stands to another one.
type relation int

const (
	older relation = iota // or the same
	newer
	apart // neither has come from the other
)

// relate compares a published ring with a state, by their histories.
func relate(own ring.State, theirs Entry) relation {
	switch {
	case own.Knows(theirs.version()):
		return older
	case slices.Contains(theirs.History, own.Version()):
		return newer
	}
	return apart
}
