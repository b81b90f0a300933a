// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package consistency

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/ring"
)

// relation is how a published ring stands to another one.
type relation int

const (
	older relation = iota // or the same
	newer
	apart // neither has come from the other
	unknown
)

// relate compares a published ring with own, by their histories.
func relate(own ring.State, theirs Line) relation {
	switch {
	case theirs.version() == "":
		return unknown
	case own.Knows(theirs.version()):
		return older
	case slices.Contains(theirs.History, own.Version()):
		return newer
	}
	return apart
}

// drift is how the ring of this process stands to those of the other hosts.
type drift string

const (
	// inSync: no other ring is newer.
	inSync drift = "agreed"
	// unpublished: the ring of this process is not published.
	unpublished drift = "unpublished"
	// late: another ring is newer, and this one has the key that signs there.
	late drift = "late"
	// unreadable: the published entry is not one that this program writes.
	unreadable drift = "unreadable"
	// forked: neither has come from the other.
	forked drift = "forked"
	// missing: this host does not have the active key of another ring, so its kube-apiserver refuses tokens.
	missing drift = "missing"
	// lost: another ring does not have the key that signs here, or it was revoked.
	lost drift = "lost"
)

// drifts lists them all, the worst last.
func drifts() []drift {
	return []drift{inSync, unpublished, late, unreadable, forked, missing, lost}
}

func (d drift) worse(than drift) bool {
	return slices.Index(drifts(), d) > slices.Index(drifts(), than)
}

// standing is the relation of the ring of this process to all published ones.
type standing struct {
	drift drift
	// other is what drift is about, and signs the key that signs here.
	other Line
	signs string
}

// compare compares the ring of a host that signs with a key with the live rings of other hosts.
func (p Published) compare(own ring.State, host, signs string, now time.Time) standing {
	s := standing{drift: inSync, signs: signs}
	found := func(is drift, about Line) {
		if is.worse(s.drift) {
			s.drift, s.other = is, about
		}
	}
	if signs == "" {
		found(lost, Line{})
	}
	if !slices.ContainsFunc(p.Lines, func(line Line) bool { return line.Host == host && line.version() == own.Version() }) {
		found(unpublished, Line{})
	}
	for _, line := range p.Lines {
		if line.version() == "" {
			found(unreadable, line)
		}
	}
	for _, line := range p.Others(host, now) {
		switch relate(own, line) {
		case newer:
			found(late, line)
		case apart:
			found(forked, line)
		case older, unknown:
			continue
		}
		if _, ok := own.Key(line.key(signing.Active)); !ok {
			found(missing, line)
		}
		// Of two rings that are forked one goes on signing.
		if line.Keys[signs] == "" && line.Generation > own.Generation {
			found(lost, line)
		}
	}
	return s
}

// describe returns what was found, and remedy what to do about it.
func (s standing) describe(own ring.State) string {
	mine := fmt.Sprintf("the key ring of this process (generation %d, version %s)", own.Generation, own.Version())
	theirs := fmt.Sprintf("that of host %s (generation %d, version %s)", s.other.Host, s.other.Generation, s.other.version())
	switch {
	case s.signs == "":
		return mine + " has no key left that may sign: its active key was revoked"
	case s.drift == inSync:
		return mine + " is the one that is published, and no other host has a newer one"
	case s.drift == unpublished:
		return mine + " is not published in " + ringSecret
	case s.drift == late:
		return mine + " is older than " + theirs + "; until that is here, key " + s.signs + " signs here"
	case s.drift == unreadable && s.other.Replica == "":
		return ringSecret + " has a schema-version that this release does not know"
	case s.drift == unreadable:
		return "the line " + linePrefix + s.other.Replica + " of " + ringSecret + " cannot be read"
	case s.drift == missing:
		return mine + " does not have key " + s.other.key(signing.Active) + ", which signs with " + theirs +
			": a kube-apiserver that verifies with it refuses those tokens"
	case s.drift == lost:
		return mine + " signs with key " + s.signs + ", and " + theirs + " does not have that key: nothing is signed with it"
	}
	return mine + " and " + theirs + " are forked: neither has come from the other"
}

func (s standing) remedy() string {
	switch s.drift {
	case late, missing, lost:
		return ": bring the newer one here (keys import, or keys import --join-fork if that is refused)"
	case forked:
		return ": keys import --join-fork"
	case unreadable:
		if s.other.Replica == "" {
			return ": run the newer release on every host"
		}
		return ": another release wrote it; if its replica is gone for good, remove it: kubectl -n " + metav1.NamespaceSystem +
			" patch secret " + SecretName + ` --type=json -p '[{"op":"remove","path":"/data/` +
			strings.ReplaceAll(linePrefix+s.other.Replica, "/", "~1") + `"}]'`
	case unpublished:
		return ": apply manifests/permissions"
	case inSync:
	}
	return ""
}
