// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"sa-controller-manager/controllers/keyring/ring"
	"sa-controller-manager/internal/check"
	"sa-controller-manager/internal/stateobject"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
)

var epoch = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func a() *signing.PrivateKey { return testkeys.Parse(testkeys.P256()) }
func b() *signing.PrivateKey { return testkeys.Parse(testkeys.P256Other()) }
func c() *signing.PrivateKey { return testkeys.Parse(testkeys.P384()) }

func retired(key *signing.PrivateKey) signing.Key { return key.Public().As(signing.Retired) }

// stateOf is a ring that was changed on this branch only.
func stateOf(branch string, generation int64, keys ...signing.Key) ring.State {
	state := ring.State{Generation: generation}
	for n := range generation {
		state.History = append(state.History, fmt.Sprintf("%d:%s", n+1, branch))
	}
	for _, key := range keys {
		state.Keys = append(state.Keys, ring.Key{Key: key})
	}
	return state
}

// entryOf is the entry of a host whose ring was changed on one branch, and that can sign with all its keys.
func entryOf(host, branch string, generation int64, keys ...signing.Key) Entry {
	entry := EntryOf(stateOf(branch, generation, keys...))
	entry.Host, entry.Signs = host, slices.Sorted(maps.Keys(entry.Keys))
	entry.SignsWith = entry.key(signing.Active)
	return entry
}

func revoked(keys ...*signing.PrivateKey) (gone []ring.Removed) {
	for _, key := range keys {
		gone = append(gone, ring.Removed{ID: key.ID(), Digest: key.Public().Digest(), Reason: ring.Revoked})
	}
	return gone
}

// TestStand: the ring file of cp-1 is of generation 4, "main"; A signs, B is retired, C is next.
func TestStand(t *testing.T) {
	t.Parallel()
	a, b, c := a(), b(), c()
	same := []signing.Key{a.As(signing.Active), retired(b), c.As(signing.Next)}
	own := entryOf("cp-1", "main", 4, same...)
	newest := func(host string) Entry { return entryOf(host, "main", 6, c.As(signing.Active), b.As(signing.Next)) }
	blind, other, restored, signer := own, own, own, own
	blind.Host, blind.Signs = "cp-2", []string{a.ID()}
	other.Host, restored.Host, restored.File = "cp-2", "cp-2", "1:main"
	signer.Signer = true
	fork := entryOf("cp-2", "other", 6, testkeys.Parse(testkeys.P521()).As(signing.Active), c.As(signing.Next))
	fork.History[0] = "1:main"
	on := func(host string, entry Entry) Entry { entry.Host = host; return entry }
	behind := fork
	behind.Generation = 2
	foreign := entryOf("cp-3", "other", 11, testkeys.Parse(testkeys.P521()).As(signing.Active))
	all := newest("cp-2")
	all.File = "4:main"
	missing := fmt.Errorf("read: %w", fs.ErrNotExist)
	for name, tc := range map[string]struct {
		reason  string
		entries []Entry
		revoked []ring.Removed
		hosts   map[string]Host
		err     error  // of the file
		signs   string // "" for A, "-" for none
		writer  string // another process of the host has written the entry
		want    []string
		remedy  string // in that of the first fact
		blocks  check.Blocks
	}{
		"nobody":   {reason: "the first start"},
		"the same": {entries: []Entry{own, other}},
		"older": {
			reason:  "that host says so itself, and it has all keys but the next one",
			entries: []Entry{own, entryOf("cp-2", "main", 3, b.As(signing.Active), a.As(signing.Next))},
			want:    []string{check.HostLacksKey}, blocks: check.Uses,
		},
		"late": {
			reason:  "a host that has missed a copy fills, re-issues and signs",
			entries: []Entry{own, entryOf("cp-2", "main", 5, a.As(signing.Active), retired(b), c.As(signing.Next))},
			want:    []string{check.RingLate}, blocks: check.Changes | check.Makes,
		},
		"late by two rotations": {
			entries: []Entry{own, newest("cp-2")},
			want:    []string{check.RingLate, check.RingDropped}, blocks: check.Changes | check.Makes | check.Signs | check.Reissues,
		},
		"forked": {
			reason: "one side signs on", entries: []Entry{own, entryOf("cp-2", "other", 4, same...)},
			want: []string{check.RingForked}, blocks: check.Changes | check.Makes | check.Reissues,
		},
		"forked, and the key there is not here": {
			entries: []Entry{own,
				entryOf("cp-2", "other", 3, testkeys.Parse(testkeys.P521()).As(signing.Active), retired(a), c.As(signing.Next))},
			want: []string{check.RingForked, check.RingMissing}, blocks: check.Changes | check.Makes | check.Reissues,
		},
		"forked, and newer": {
			reason: "one side stops", entries: []Entry{own, fork},
			want:   []string{check.RingForked, check.RingMissing, check.RingDropped},
			blocks: check.Changes | check.Makes | check.Reissues | check.Signs,
		},
		"a fork that fewer hosts have": {
			reason:  "it was copied by hand, with a higher generation: every other host stopped",
			entries: []Entry{own, other, on("cp-3", fork)},
			want:    []string{check.RingForked, check.RingMissing, check.HostLacksActiveKey},
			blocks:  check.Changes | check.Makes | check.Reissues,
			remedy:  "on host cp-1 take the keys of that of host cp-3 (keys import --join-fork), then bring the result to cp-3",
		},
		"an older fork that more hosts have": {
			reason:  "this host has the file that was copied by hand",
			entries: []Entry{own, on("cp-2", behind), on("cp-3", behind)},
			want: []string{
				check.RingForked, check.RingMissing, check.RingDropped, check.RingForked, check.RingMissing, check.RingDropped,
			},
			remedy: "on host cp-2 take the keys of that of host cp-1 (keys import --join-fork), then bring the result to cp-1",
			blocks: check.Changes | check.Makes | check.Reissues | check.Signs,
		},
		"of another cluster": {
			reason:  "a host was set up with the wrong file, of a high generation: every host stopped",
			entries: []Entry{own, entryOf("cp-2", "other", 11, testkeys.Parse(testkeys.P521()).As(signing.Active), c.As(signing.Next))},
			want:    []string{check.RingForked, check.RingMissing, check.HostLacksActiveKey},
			blocks:  check.Changes | check.Makes | check.Reissues,
		},
		"of another cluster, on one host of three": {
			reason: "the remedy was to take keys with which another cluster's tokens are valid here", entries: []Entry{own, other, foreign},
			want: []string{check.RingForked, check.RingMissing, check.HostLacksActiveKey, check.HostLacksKey},
			remedy: "if that of host cp-3 is: stop our process there, move the file away, keys forget cp-3, and bring the ring of " +
				"host cp-1 there",
			blocks: check.Changes | check.Makes | check.Reissues | check.Uses,
		},
		"of another cluster, on two of three": {
			reason: "it signed on, with a key that no other host has", entries: []Entry{own, on("cp-2", foreign), foreign},
			want: []string{
				check.RingForked, check.RingMissing, check.RingDropped, check.RingForked, check.RingMissing, check.RingDropped,
				check.NoNextKey,
			},
			remedy: "if that of host cp-1 is: stop our process there, move the file away, keys forget cp-1, and bring the ring of " +
				"host cp-2 there",
			blocks: check.Changes | check.Makes | check.Reissues | check.Signs,
		},
		"of another cluster, and this one is not published": {
			reason: "it signs on", entries: []Entry{foreign},
			want:   []string{check.RingForked, check.RingMissing, check.HostLacksActiveKey, check.HostLacksKey},
			blocks: check.Changes | check.Makes | check.Reissues | check.Uses,
		},
		"restored": {
			reason: "an older file than the one that this host has used: every check was green", entries: []Entry{newest("cp-1")},
			want:   []string{check.RingRestored, check.RingDropped},
			blocks: check.Changes | check.Makes | check.Reissues | check.Signs,
		},
		"restored, and two hosts have the ring": {
			reason: "the first one by name may be dead", entries: []Entry{newest("cp-1"), newest("cp-2"), newest("cp-3")},
			want:   []string{check.RingRestored, check.RingDropped},
			remedy: "bring the ring of host cp-2 or cp-3 here (keys import)",
			blocks: check.Changes | check.Makes | check.Reissues | check.Signs,
		},
		"all restored": {
			reason: "no remedy is one that another host would have to have", entries: []Entry{newest("cp-1"), all},
			want:   []string{check.RingRestored, check.RingDropped, check.HostRestored},
			blocks: check.Changes | check.Makes | check.Reissues | check.Signs | check.Uses,
		},
		"a host of another process": {
			reason: "the kubelet may have updated its volume first", entries: []Entry{entryOf("cp-1", "main", 5, same...)}, writer: "pod-2",
			want: []string{check.RingLate}, blocks: check.Changes | check.Makes,
		},
		"another ring in its place": {
			entries: []Entry{entryOf("cp-1", "other", 4, same...)}, want: []string{check.RingRestored},
			blocks: check.Changes | check.Makes | check.Reissues,
		},
		"lost": {err: missing, entries: []Entry{own}, want: []string{check.RingLost},
			blocks: check.Changes | check.Makes | check.Reissues},
		"never there":    {err: missing, entries: []Entry{other}},
		"just changed":   {reason: "the process has not published it yet", entries: []Entry{entryOf("cp-1", "main", 3, same...), other}},
		"restored there": {entries: []Entry{own, restored}, want: []string{check.HostRestored}, blocks: check.Uses},
		"blind there":    {entries: []Entry{own, blind}, want: []string{check.HostCannotSign}, blocks: check.Uses},
		"unreadable there": {
			entries: []Entry{own, {Host: "cp-2"}}, want: []string{check.RingUnreadable}, blocks: check.Uses | check.Reissues,
		},
		"joined without a ring": {
			reason: "its certificates were uploaded before", entries: []Entry{signer}, hosts: map[string]Host{"cp-3": {APIServer: true}},
			want: []string{check.HostWithoutRing}, blocks: check.Uses,
		},
		"kube-apiservers with key files": {
			reason: "they are asked themselves", entries: []Entry{own}, hosts: map[string]Host{"cp-3": {APIServer: true}},
		},
		"revoked on another host": {
			entries: []Entry{own, other}, revoked: revoked(b), want: []string{check.RevokedInFile}, blocks: check.Uses,
		},
		"all revoked": {
			entries: []Entry{own}, revoked: revoked(a, c), signs: "-", want: []string{check.RevokedInFile, check.RingRevoked},
			blocks: check.Uses | check.Signs | check.Reissues,
		},
		"no next key": {
			entries: []Entry{entryOf("cp-2", "main", 7, a.As(signing.Active), retired(b), retired(c)), own},
			want:    []string{check.RingLate, check.NoNextKey}, blocks: check.Changes | check.Makes,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := File{Host: "cp-1", State: stateOf("main", 4, same...), Err: tc.err, Process: true, SignsWith: cmp.Or(tc.signs, a.ID())}
			if tc.signs == "-" {
				file.SignsWith = ""
			}
			if file.Err != nil {
				file.State = ring.State{}
			}
			p := Published{Entries: slices.Clone(tc.entries), Removed: tc.revoked, Hosts: tc.hosts}
			if len(p.Entries) > 0 {
				p.Entries[0].Writer = tc.writer
			}
			stands := Stand(file, p)
			var codes []string
			var blocks check.Blocks
			for _, fact := range stands.Facts {
				codes = append(codes, fact.Code)
				blocks |= fact.Blocks &^ check.Later
				text := fact.Message + fact.Remedy
				testutil.Expect(t, !strings.ContainsAny(text, "{}\n") && fact.Remedy != "", "it says %q", text)
			}
			codes = slices.Compact(codes)
			testutil.Check(t, tc.reason+": facts", tc.want, codes)
			if len(stands.Facts) > 0 && !strings.Contains(stands.Facts[0].Remedy, tc.remedy) {
				t.Errorf("%s: remedy %q, want %q", tc.reason, stands.Facts[0].Remedy, tc.remedy)
			}
			testutil.Expect(t, blocks == tc.blocks, "%s: blocked is %b, want %b", tc.reason, blocks, tc.blocks)
			for i := range p.Entries { // clocks decide nothing, an hour fast or slow
				p.Entries[i].Renewed = epoch.Add(time.Duration(2*i-1) * time.Hour)
			}
			again := Stand(file, p)
			testutil.Expect(t, len(again.Facts) == len(stands.Facts), "with other clocks: %+v", again.Facts)
		})
	}
}

// TestFindings: a new next key has a day to arrive, unless it is not known how old it is.
func TestFindings(t *testing.T) {
	t.Parallel()
	for changed, want := range map[time.Duration]int{
		-ring.Settled - time.Second: 1, -time.Hour: 0, 2 * time.Hour: 0 /* clocks an hour off, both ways */, ring.Settled + time.Second: 1,
	} {
		newest := entryOf("cp-1", "main", 5, b().As(signing.Active), a().As(signing.Next))
		newest.Changed = epoch.Add(changed)
		p := Published{Entries: []Entry{newest, entryOf("cp-2", "main", 4, b().As(signing.Active), c().As(signing.Next))}}
		got := Stand(File{}, p).Findings(epoch)
		testutil.Expect(t, len(got) == want, "changed %s ago: %+v, want %d findings", -changed, got, want)
	}
}

// TestRefuses: a host that is gone for good is left out, and only by its name.
func TestRefuses(t *testing.T) {
	t.Parallel()
	state := stateOf("main", 4, a().As(signing.Active), c().As(signing.Next))
	p := Published{Entries: []Entry{
		entryOf("cp-1", "main", 4, a().As(signing.Active), c().As(signing.Next)), entryOf("cp-2", "main", 5, a().As(signing.Active)),
	}}
	stands := Stand(File{Host: "cp-1", State: state}, p)
	err := stands.Refuses(check.Changes)
	testutil.CheckError(t, "a newer ring", "older than that of host cp-2", err)
	testutil.Expect(t, stands.Refuses(check.Changes|check.Uses, "cp-3") != nil, "without another host it is not refused")
	testutil.Must(t, stands.Refuses(check.Changes|check.Uses, "cp-2"))
}

// TestActive: the key that the newest ring signs with, also when the file is late, and once a revocation has made it active.
func TestActive(t *testing.T) {
	t.Parallel()
	late := File{Host: "cp-2", State: stateOf("main", 4, a().As(signing.Active), c().As(signing.Next))}
	check := func(when string, p Published, active string, signs, settled bool) {
		t.Helper()
		s := Stand(late, p)
		if by, since := s.ByRevocation(epoch); s.Active() != active || by != signs || since != settled {
			t.Errorf("%s: %s signs, by a revocation: %t, for a day: %t", when, s.Active(), by, since)
		}
	}
	p := Published{Entries: []Entry{entryOf("cp-1", "main", 5, retired(a()), c().As(signing.Active), b().As(signing.Next))}}
	check("rotated", p, c().ID(), false, false)
	p.Entries[0].Changed, p.Removed = epoch.Add(-48*time.Hour), revoked(c())
	check("revoked just now, long after the last rotation", p, b().ID(), true, false)
	for age, settled := range map[time.Duration]bool{-time.Hour: false, time.Hour: false, 48 * time.Hour: true} {
		after := stateOf("main", 6, b().As(signing.Active), a().As(signing.Next))
		after.Keys[0].ByRevocation, after.Keys[0].ActivatedAt = true, epoch.Add(-age)
		after.Keys[1].PublishedAt = epoch // by keys next
		p.Entries[0] = EntryOf(after)
		p.Entries[0].Host = "cp-1"
		check(fmt.Sprintf("the file was changed %s ago", age), p, b().ID(), true, settled)
	}
}

// TestForks: with a ring of another cluster, or a fork, it is not known which key has leaked.
func TestForks(t *testing.T) {
	t.Parallel()
	own := File{Host: "cp-1", State: stateOf("main", 4, a().As(signing.Active), c().As(signing.Next))}
	late := entryOf("cp-3", "main", 3, b().As(signing.Active), a().As(signing.Next))
	nothing := Entry{Host: "cp-4", History: []string{"1:x"}} // no key signs there
	p := Published{Entries: []Entry{entryOf("cp-1", "main", 4, a().As(signing.Active), c().As(signing.Next)), late, nothing}}
	for _, file := range []File{own, {Host: "cp-1", Err: fs.ErrNotExist}, {}} {
		s := Stand(file, p)
		testutil.Expect(t, s.Forks() == "" && s.Active() == a().ID(), "beside a late host: %s, %s signs", s.Forks(), s.Active())
		other := p
		other.Entries = append(slices.Clone(p.Entries), entryOf("cp-2", "other", 11, b().As(signing.Active)))
		if s := Stand(file, other); s.Forks() != "cp-1: "+a().ID()+", cp-2: "+b().ID() || s.Active() != a().ID() {
			t.Errorf("beside another cluster's: %s, %s signs", s.Forks(), s.Active())
		}
	}
	empty := p
	for i := range 4 { // they have come from one another, and would be the larger side
		empty.Entries = append(slices.Clone(empty.Entries), Entry{Host: fmt.Sprint("x", i), History: []string{"1:x"}})
	}
	s := Stand(own, empty)
	testutil.Expect(t, s.newest.Host == "cp-1", "the newest ring is that of %s, which has no key", s.newest.Host)
	for i := range 100 {
		forged := fmt.Sprint("x", i)
		p.Entries = append(p.Entries, Entry{Host: forged, History: []string{"0:" + forged},
			Keys: map[string]signing.Role{forged: signing.Active}})
	}
	forks := Stand(own, p).Forks()
	testutil.Expect(t, strings.HasSuffix(forks, "x3: x3, and 96 more"), "beside a hundred that another client has written: %s", forks)
}

// TestCached: the wait counts for how long each host has shown the key, by the clock of that host.
func TestCached(t *testing.T) {
	t.Parallel()
	own := stateOf("main", 4, a().As(signing.Active), c().As(signing.Next))
	shown := func(host string, since time.Duration) Entry {
		entry := entryOf(host, "main", 4, a().As(signing.Active), c().As(signing.Next))
		entry.ShowsNext, entry.NextSeconds = true, int64(since.Seconds())
		return entry
	}
	hidden := shown("cp-3", time.Hour)
	hidden.ShowsNext = false
	for name, tc := range map[string]struct {
		entries []Entry
		without []string
		want    string
		until   time.Duration
	}{
		"long enough": {entries: []Entry{shown("cp-1", time.Hour), shown("cp-2", 2*time.Hour)}},
		"vault#11438: a second before it is due": {
			entries: []Entry{shown("cp-1", time.Hour-time.Second)}, want: "has published it for 59m59s", until: time.Second,
		},
		"a host shows it lately": {
			entries: []Entry{shown("cp-1", time.Minute), shown("cp-2", time.Hour)}, want: "host cp-1 has published it for 1m0s",
			until: 59 * time.Minute,
		},
		"a directory fails": {entries: []Entry{shown("cp-1", time.Hour), hidden}, want: "is not published by host cp-3"},
		"that host is gone": {entries: []Entry{shown("cp-1", time.Hour), hidden}, without: []string{"cp-3"}},
		"nobody shows it":   {want: "is not published by any host"},
	} {
		err := Published{Entries: tc.entries}.Cached(own, tc.without, time.Hour, epoch)
		refusal, _ := errors.AsType[*ring.Refusal](err)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		} else if err != nil && (refusal.Breaks == "" || refusal.Later != (tc.until == 0) ||
			tc.until != 0 && !refusal.Until.Equal(epoch.Add(tc.until))) {
			t.Errorf("%s: %+v, want it until %s", name, refusal, tc.until)
		}
		later, _ := errors.AsType[*ring.Refusal](Published{Entries: tc.entries}.Cached(own, tc.without, time.Hour,
			epoch.Add(time.Second/2)))
		if later != nil && later.Reason != refusal.Reason {
			t.Errorf("%s: a wait would print another line: %q and %q", name, refusal.Reason, later.Reason)
		}
	}
}

// TestFollow: a key's time runs only from when no kube-apiserver signs with it, as far as that is known.
func TestFollow(t *testing.T) {
	t.Parallel()
	state := stateOf("main", 4, a().As(signing.Active), retired(b()))
	signer, late := entryOf("cp-1", "main", 4, a().As(signing.Active)), entryOf("cp-2", "main", 3, b().As(signing.Active))
	signer.Signer, late.Signer = true, true
	var p Published
	both := map[string]Host{"cp-1": {APIServer: true}, "cp-2": {APIServer: true}}
	for i, step := range []struct {
		entries []Entry
		hosts   map[string]Host
		want    bool
	}{
		{[]Entry{signer, late}, both, false},
		{[]Entry{signer}, both, false}, // what that one signs with is unknown
		{[]Entry{signer}, map[string]Host{"cp-1": {APIServer: true}}, true},
		{[]Entry{signer, late}, both, false}, // it came back
	} {
		p.Entries, p.Hosts = step.entries, step.hosts
		p.follow(state, epoch)
		_, got := p.Followed[b().ID()]
		testutil.Expect(t, got == step.want, "step %d: followed %t", i, got)
	}
	p.Followed = map[string]time.Time{b().ID(): epoch}
	p.follow(stateOf("main", 5, b().As(signing.Active), retired(a())), epoch)
	_, stale := p.Followed[b().ID()]
	testutil.Expect(t, !stale, "after a rollback the time of the retirement before it is kept")
}

// TestMeet: a kube-apiserver that was once seen counts until it is forgotten, or its Node is deleted. One that lives is back.
func TestMeet(t *testing.T) {
	t.Parallel()
	lease := func(host, renewed string) Observed {
		return Observed{Leases: map[string]string{host: renewed}, Nodes: map[string]bool{"cp-1": true}}
	}
	p := Published{
		Entries: []Entry{entryOf("cp-1", "main", 4, a().As(signing.Active)), entryOf("cp-2", "main", 4, a().As(signing.Active))},
		Claim:   Claim{Generation: 5, Host: "cp-2"},
	}
	for i, step := range []struct {
		do   func()
		want string
	}{
		{func() { p.Meet(lease("cp-2", "1")) }, "cp-1 cp-2; servers cp-2"},
		{func() { p.Meet(Observed{}) }, "cp-1 cp-2; servers cp-2"}, // its Lease has expired
		{func() { p.Forget("cp-2", "1") }, "cp-1; servers "},
		{func() { p.Meet(lease("cp-2", "1")) }, "cp-1; servers "},          // the Lease of the dead one
		{func() { p.Meet(lease("cp-2", "2")) }, "cp-1 cp-2; servers cp-2"}, // it lives
		{func() { p.Meet(Observed{Nodes: map[string]bool{"cp-2": false}}) }, "cp-1 cp-2; servers cp-2"},
		// it has never had a Node of that name
		{func() { p.Meet(Observed{Nodes: map[string]bool{"cp-1": false}}) }, "cp-2; servers cp-2"},
	} {
		step.do()
		got := strings.Join(p.names(), " ") + "; servers " + strings.Join(p.APIServers(), " ")
		testutil.Expect(t, got == step.want, "step %d: %s, want %s", i, got, step.want)
	}
	p.Claim = Claim{Generation: 5, Host: "laptop"} // of a command elsewhere
	if p.Forget("laptop", ""); !slices.Contains((Published{Claim: Claim{Host: "laptop"}}).names(), "laptop") {
		t.Error("a host is not known that has a claim")
	}
	testutil.Expect(t, p.Claim == (Claim{}), "the claim of a host that was forgotten is left: %+v", p.Claim)
}

// TestClaim: a claim of another host lasts, whatever its clock says, until that is left out.
func TestClaim(t *testing.T) {
	t.Parallel()
	var p Published
	own := stateOf("main", 4, a().As(signing.Active))
	testutil.Must(t, p.ClaimRing(own, "cp-1", nil))
	testutil.Must(t, p.ClaimRing(own, "cp-1", nil))
	err := p.ClaimRing(own, "cp-2", nil)
	testutil.CheckError(t, "two hosts make a generation", "host cp-1 is making generation 5", err)
	testutil.Must(t, p.ClaimRing(stateOf("main", 5, a().As(signing.Active)), "cp-2", nil))
	testutil.Must(t, p.ClaimRing(own, "cp-3", []string{"cp-2"}))
}

func TestRead(t *testing.T) {
	t.Parallel()
	line := testutil.Get(json.Marshal(entryOf("cp-1", "main", 3, a().As(signing.Active))))(t)
	good := &corev1.Secret{Data: stateobject.Stamp(map[string][]byte{entryPrefix + "cp-1": line})}
	with := func(key, value string) *corev1.Secret {
		secret := good.DeepCopy()
		secret.Data[key] = []byte(value)
		return secret
	}
	for name, tc := range map[string]struct {
		secret *corev1.Secret
		lines  int
		want   string // in the error
	}{
		"None":        {},
		"Empty":       {secret: &corev1.Secret{}}, // as it comes with the permissions
		"One":         {secret: good, lines: 1},
		"OtherSchema": {secret: with(stateobject.VersionKey, "2"), want: `schema-version is "2"`},
		"NoJSON":      {secret: with("host.x", "{"), lines: 2}, // a fact about that host, and no error
		"NoHistory":   {secret: with("host.x", `{"writer":"x"}`), lines: 2},
		"BadPart":     {secret: with("removed", `{`), lines: 1, want: "removed: it is not as this program writes it"},
		"Junk": { // no ring could be written with it
			secret: with("removed", `[{"id":"junk","digest":"","reason":"revoked"},{"id":"x","digest":"x","reason":"pruned"}]`), lines: 1,
			want: "removed: 2 records are of no revocation",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := Read(tc.secret)
			if len(p.Entries) != tc.lines || (err != nil) != (tc.want != "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%d lines, %v; want %d and %q", len(p.Entries), err, tc.lines, tc.want)
			}
		})
	}
}

// TestReadIsBounded: nothing that is written into the Secret makes a command or a process work for minutes. It is as if it had been
// deleted, but for revocations.
func TestReadIsBounded(t *testing.T) {
	t.Parallel()
	for name, forge := range map[string]func(data map[string][]byte, hosts map[string]Host, i int){
		"entries": func(data map[string][]byte, _ map[string]Host, i int) {
			data[fmt.Sprintf("%sh%05d", entryPrefix, i)] = []byte(`{"history":["1:x"],"keys":{"x":"active"}}`)
		},
		"hosts": func(_ map[string][]byte, hosts map[string]Host, i int) {
			hosts[fmt.Sprint("h", i)] = Host{APIServer: true}
		},
	} {
		for count, want := range map[int]string{100: "", 9000: "hosts: there are more than 256: it is written again within a minute"} {
			stored, hosts := secret(), map[string]Host{"cp-1": {APIServer: true}}
			stored.Data = stateobject.Stamp(map[string][]byte{})
			for i := range count {
				forge(stored.Data, hosts, i)
			}
			var err, errOfRevoked error
			stored.Data["hosts"], err = json.Marshal(hosts)
			stored.Data["removed"], errOfRevoked = json.Marshal(revoked(a()))
			testutil.Must(t, errors.Join(err, errOfRevoked))
			client := newAPI(stored)
			p, err := Fetch(t.Context(), client)
			testutil.Expect(t, (err != nil) == (want != "") && (err == nil || strings.Contains(err.Error(), want)), "%d %s: %v, want %q",
				count,
				name, err, want)
			known := len(p.names()) // a kube-apiserver that was seen is known still, unless those are too many
			if want != "" && (known > 1 || (known == 1) != (name == "entries")) || want == "" && known < count || len(p.Removed) != 1 {
				t.Errorf("%d %s: %d hosts are known, %d keys are revoked", count, name, known, len(p.Removed))
			}
			testutil.Must(t, Edit(t.Context(), client, func(p *Published) error { // as each host does
				p.Entries = append(p.Entries, entryOf("cp-1", "main", 3, b().As(signing.Active)))
				return nil
			}))
			if p, err := Fetch(t.Context(), client); err != nil || want != "" && len(p.names()) != 1 || len(p.Removed) != 1 {
				t.Errorf("%d %s, written again: %d hosts, %v", count, name, len(p.names()), err)
			}
		}
	}
	long := Entry{Host: "x", History: make([]string, ring.MaxHistory+1)}
	for i := range long.History {
		long.History[i] = fmt.Sprint(i)
	}
	for _, readable := range []bool{false, true} {
		data := testutil.Get(json.Marshal(long))(t)
		testutil.Expect(t, (readEntry("x", data).version() != "") == readable, "an entry with %d versions is readable: %t",
			len(long.History),
			!readable)
		long.History = long.History[1:]
	}
}

// TestEditKeepsBytes: what others have written does not grow, so that a Secret that was filled up to its limit keeps no revocation
// from being published.
func TestEditKeepsBytes(t *testing.T) {
	t.Parallel()
	forged, later := []byte(`{"generation":0,"history":["1:x"]}`), []byte(`{"schema":9}`)
	stored := secret()
	stored.Data = stateobject.Stamp(map[string][]byte{entryPrefix + "x": forged, entryPrefix + "y": later})
	client := newAPI(stored)
	testutil.Must(t, Edit(t.Context(), client, func(p *Published) error {
		p.Revoke(revoked(a()))
		p.Entries = append(p.Entries, entryOf("cp-1", "main", 3, b().As(signing.Active)))
		return nil
	}))
	after := testutil.Get(client.CoreV1().Secrets(metav1.NamespaceSystem).Get(t.Context(), SecretName, metav1.GetOptions{}))(t)
	testutil.Check(t, "another program's", [][]byte{forged, later}, [][]byte{after.Data[entryPrefix+"x"], after.Data[entryPrefix+"y"]})
	p, err := Read(after)
	testutil.Expect(t, err == nil && len(p.Entries) == 3 && len(p.Removed) == 1, "read again: %+v, %v", p, err)
}

// TestFindingsAfterARotation: times are rounded up, and a copy of the ring has not arrived anywhere yet.
func TestFindingsAfterARotation(t *testing.T) {
	t.Parallel()
	keys := []signing.Key{a().As(signing.Active), c().As(signing.Next)}
	file := File{Host: "cp-1", State: stateOf("main", 4, keys...)}
	stands := Stand(file, Published{Entries: []Entry{entryOf("cp-2", "main", 3, a().As(signing.Active))}})
	stands.newest.Changed = epoch
	for after, lacks := range map[time.Duration]bool{-time.Second: false, time.Hour: false, 25 * time.Hour: true} {
		var codes []string
		for _, finding := range stands.Findings(epoch.Add(after)) {
			codes = append(codes, finding.Code)
		}
		testutil.Expect(t, slices.Contains(codes, check.HostLacksKey) == lacks, "%v after the rotation: %q, want %s: %t", after, codes,
			check.HostLacksKey, lacks)
	}
}

// TestObserveIsBounded: names that nobody has ever published a ring under cost no request each.
func TestObserveIsBounded(t *testing.T) {
	t.Parallel()
	client, p := fake.NewClientset(), Published{Hosts: map[string]Host{"cp-1": {APIServer: true}}}
	for i := range 1000 {
		p.Hosts[fmt.Sprint("h", i)] = Host{}
	}
	testutil.Get(Observe(t.Context(), client, p))(t)
	got := len(client.Actions())
	testutil.Expect(t, got == 2, "%d requests, want one for the Leases and one for the Node of cp-1", got)
}
