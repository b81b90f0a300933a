// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"slices"
	"strconv"
	"strings"
)

// Facts about the ring file of this host, the worst last.
const (
	RingUnpublished = "ring-unpublished"
	RingLate        = "ring-late"
	RingUnreadable  = "ring-unreadable"
	RingForked      = "ring-forked"
	RingMissing     = "ring-lacks-active-key"
	RingRestored    = "ring-restored"
	RingLost        = "ring-lost"
	RingDropped     = "ring-signs-dropped-key"
	RingRevoked     = "ring-revoked"
)

// Facts about other hosts, and about all of them.
const (
	RevokedInFile      = "revoked-key-in-file"
	HostRestored       = "host-restored"
	HostWithoutRing    = "host-without-ring"
	HostLacksActiveKey = "host-lacks-active-key"
	HostLacksKey       = "host-lacks-next-key"
	HostCannotSign     = "host-cannot-sign"
	ActiveKeyAway      = "active-key-away"
	NoNextKey          = "no-next-key"
	RevokedKeyAccepted = "revoked-key-accepted"
	RevokedHeld        = "revoked-key-in-secrets"
	APIServerNotAsked  = "apiserver-not-asked"
)

// RingCodes are the facts about the ring file of this host, the worst last.
func RingCodes() []string {
	return []string{RingUnpublished, RingLate, RingUnreadable, RingForked, RingMissing, RingRestored, RingLost, RingDropped, RingRevoked}
}

// RingWorse reports whether a fact about the ring file is worse than another one.
func RingWorse(code, than string) bool {
	return slices.Index(RingCodes(), code) > slices.Index(RingCodes(), than)
}

// Blocks are what must not happen while a fact holds.
type Blocks uint8

const (
	// Signs is every signature of this host.
	Signs Blocks = 1 << iota
	// Reissues is the re-issue of token Secrets by this host.
	Reissues
	// Changes are those of this host's ring file, but for a revocation and an import.
	Changes
	// Makes is the making of keys in a revocation, which is never blocked itself.
	Makes
	// Uses is the first signature with a key, and the pruning of one.
	Uses
	// Later blocks nothing: the fact may pass by itself, so that --wait waits.
	Later
)

// KeyFact is a fact about key rings.
type KeyFact struct {
	Finding

	Blocks Blocks
	// Host is the one that must be gone for good for the fact not to count, "" for none.
	Host string
}

// KeyArgs are what the sentences name: {host}, {key} and its {role}, {other}, another host, the generations {our} and
// {their}, {why} and {way}, a way out.
type KeyArgs struct {
	Host, Key, Role, Other, Why, Way string
	Our, Their                       int64
}

const ifGone = " or, if that host is gone for good: --without-host={host} once, keys forget {host} forever"

// keyFacts says what each fact blocks, what it is called, and the way out.
var keyFacts = map[string]struct {
	blocks          Blocks
	message, remedy string
}{
	RingUnpublished: {Reissues, "the key ring of this host (generation {our}) is not published: {why}",
		"if a permission or the Secret is missing: apply manifests/permissions"},
	RingLate: {Changes | Makes, "the key ring of this host (generation {our}) is older than that of host {host} (generation {their})",
		"bring that one here (keys import)" + ifGone},
	RingUnreadable: {Reissues | Uses, "the published key rings cannot be read: {why}",
		"run the newer release on every host; keys forget HOST gives one up"},
	RingForked: {Changes | Makes | Reissues, "the key ring of this host (generation {our}) and that of host {host} (generation {their}) " +
		"are forked: neither has come from the other", "{way}" + ifGone},
	RingMissing: {Reissues, "this host does not have key {key}, with which host {host} signs: kube-apiserver here refuses those tokens",
		"{way}"},
	RingRestored: {Changes | Makes | Reissues, "the key ring file of this host (generation {our}) is not the one that it has used " +
		"(generation {their}), and not a newer one: was an old copy put back? Tokens of the keys that it lacks are refused", "{way}"},
	RingLost: {
		Changes | Makes | Reissues, "this host has used a key ring (generation {their}), and its file cannot be read: {why}", "{way}",
	},
	RingDropped: {Signs | Reissues, "key {key} signs here, and the ring of host {host} (generation {their}) does not have it: nothing is " +
		"signed", "{way}"},
	RingRevoked: {Signs | Reissues, "this host has no key left that may sign: its active key was revoked",
		"bring a newer ring here (keys import), or: keys revoke {key}"},

	RevokedInFile: {Uses, "key {key} is revoked, and in the ring file of this host still",
		"bring a newer ring here (keys import), or: keys revoke {key}"},
	HostRestored: {Uses, "the ring file of host {host} is not the one that it has used, and not a newer one, or it is lost",
		"keys list there says what to do" + ifGone},
	HostWithoutRing: {Uses, "kube-apiserver runs on host {host}, which publishes no key ring: nobody knows which keys it has",
		"bring the ring there (keys import) and start the process" + ifGone},
	HostLacksActiveKey: {0, "host {host} does not have key {key}, which signs on host {other}",
		"bring the ring of that host there (keys import); if that is refused, keys list there says what to do"},
	HostLacksKey: {Uses | Later, "host {host} does not have the {role} key {key}", "bring the ring there (keys import)" + ifGone},
	ActiveKeyAway: {0, "host {host} cannot sign with key {key}, which is active: {why}",
		"repair the process that has it or, if it is gone for good: keys rollback, or keys rotate to a key in a file"},
	HostCannotSign: {Uses | Later, "host {host} cannot sign with the {role} key {key}: {why}",
		"see key-backends in its /readyz?verbose" + ifGone},
	NoNextKey: {0, "the key ring has no next key, so keys rotate is refused", "keys next"},
	RevokedKeyAccepted: {0, "{host} accepts key {key}, which is revoked", "with key files, bring the ring there, write them " +
		"(keys export --kubeadm) and restart it; with the external signer, start our process there"},
	RevokedHeld: {0, "{why} token Secrets have a token of key {key}, which is revoked, so that it is refused",
		"keys revoke {key}{flags} names a token controller that signs with it still; once none does, remove their data.token, and they " +
			"are filled again"},
	APIServerNotAsked: {Uses | Later, "{host}: it is not known which keys it accepts",
		"run this where it can be reached, or name it with --apiserver; if it is gone for good: --without-host once, " +
			"keys forget NAME{flags} forever"},
}

// Key returns a fact.
func Key(code string, args KeyArgs) KeyFact {
	fact := keyFacts[code]
	text := strings.NewReplacer("{host}", args.Host, "{key}", args.Key, "{role}", args.Role, "{other}", args.Other, "{why}", args.Why,
		"{way}", args.Way, "{our}", strconv.FormatInt(args.Our, 10), "{their}", strconv.FormatInt(args.Their, 10)).Replace
	why := args.Why
	if strings.Contains(fact.message, "{why}") {
		why = ""
	}
	return KeyFact{
		Finding: Finding{Code: code, Message: text(fact.message), Remedy: text(fact.remedy), Host: args.Host, Why: why},
		Blocks:  fact.blocks, Host: args.Host,
	}
}
