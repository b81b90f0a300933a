// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package consistency

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/internal/stateobject"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/ring"
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

// lineOf is a live line of a host whose ring was changed on one branch, and that can sign with all its keys.
func lineOf(host, branch string, generation int64, keys ...signing.Key) Line {
	line := LineOf(stateOf(branch, generation, keys...))
	line.Replica, line.Host, line.Renewed = host+"_1", host, epoch
	for _, key := range keys {
		line.Signs = append(line.Signs, key.ID)
	}
	line.SignsWith = line.key(signing.Active)
	return line
}

// TestCompare: the ring of this process is of generation 4, "main"; A signs, B is retired.
func TestCompare(t *testing.T) {
	t.Parallel()
	a, b, c := a(), b(), c()
	mine := lineOf("me", "main", 4, a.As(signing.Active), retired(b))
	dead := lineOf("cp-2", "main", 9, c.As(signing.Active))
	dead.Renewed = epoch.Add(-lineAge - time.Second)
	cases := map[string]struct {
		reason string
		others []Line
		want   drift
		signs  string // "" for A
		// What is not done then.
		noFilling, noReissue bool
	}{
		"Nobody": {want: inSync},
		"Same":   {others: []Line{lineOf("cp-2", "main", 4, a.As(signing.Active))}, want: inSync},
		"Older":  {reason: "that replica reports it", others: []Line{lineOf("cp-2", "main", 3, b.As(signing.Active))}, want: inSync},
		"EqualFork": {
			reason: "one side signs on", others: []Line{lineOf("cp-2", "other", 4, a.As(signing.Active))}, want: forked, noReissue: true,
		},
		"Missing": {others: []Line{lineOf("cp-2", "other", 3, c.As(signing.Active))}, want: missing, noReissue: true},
		"Late": {
			reason: "a host that has missed a copy fills, re-issues and signs",
			others: []Line{lineOf("cp-2", "main", 5, a.As(signing.Active), retired(b), c.As(signing.Next))}, want: late,
		},
		"Pruned": {
			reason: "this host was away during two rotations",
			others: []Line{lineOf("cp-2", "main", 9, c.As(signing.Active))}, want: lost, noFilling: true, noReissue: true,
		},
		"NewerFork": {others: []Line{lineOf("cp-2", "other", 5, b.As(signing.Active))}, want: lost, noFilling: true, noReissue: true},
		"Dead":      {reason: "it blocks nothing", others: []Line{dead}, want: inSync},
		"MyOwn": {
			reason: "a process before, with another file", others: []Line{lineOf("me", "main", 9, c.As(signing.Active))}, want: inSync,
		},
		"Revoked":    {signs: "-", want: lost, noFilling: true, noReissue: true},
		"Unreadable": {others: []Line{{Replica: "x"}}, want: unreadable, noReissue: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			state := stateOf("main", 4, a.As(signing.Active), retired(b))
			signs := a.ID()
			if tc.signs == "-" {
				signs = ""
			}
			p := Published{Lines: append([]Line{mine}, tc.others...)}
			found := p.compare(state, "me", signs, epoch)
			if found.drift != tc.want {
				t.Errorf("%s: %q, want %q", tc.reason, found.drift, tc.want)
			}
			if text := found.describe(state) + found.remedy(); strings.Contains(text, "%!") || strings.Contains(text, "\n") {
				t.Errorf("it says %q", text)
			}
			for i := range p.Lines {
				p.Lines[i].Renewed = p.Lines[i].Renewed.Add(time.Since(epoch))
			}
			c := &Controller{Config: Config{State: func() ring.State { return state }, SignsWith: func() string { return signs }, Host: "me"}}
			c.published.Store(&p)
			for what, tc := range map[string]struct {
				err  error
				want bool
			}{"fill": {c.MayFill(), tc.noFilling}, "sign": {c.MaySign(), tc.noFilling}, "re-issue": {c.MayReissue(), tc.noReissue}} {
				if (tc.err != nil) != tc.want {
					t.Errorf("may %s: %v", what, tc.err)
				}
			}
		})
	}
}

// TestMayUse: A signs and C is next. Rings compare by their keys: a newer generation alone refuses
// nothing on a host that has all of it.
func TestMayUse(t *testing.T) {
	t.Parallel()
	own := stateOf("main", 4, a().As(signing.Active), c().As(signing.Next))
	current := lineOf("cp-2", "main", 4, a().As(signing.Active), c().As(signing.Next))
	blind := lineOf("cp-2", "main", 4, a().As(signing.Active), c().As(signing.Next))
	blind.Signs = []string{a().ID()}
	dead := lineOf("cp-3", "main", 2, a().As(signing.Active))
	dead.Renewed = epoch.Add(-lineAge - time.Second)
	for name, tc := range map[string]struct {
		lines   []Line
		without []string
		want    string // "" if C may be used
		later   bool
	}{
		"nobody":          {},
		"each has it":     {lines: []Line{current, lineOf("me", "main", 4, a().As(signing.Active), c().As(signing.Next))}},
		"dead":            {lines: []Line{current, dead}},
		"late by a prune": {lines: []Line{lineOf("cp-2", "main", 3, b().As(signing.Active), c().As(signing.Next))}},
		"without it": {
			lines: []Line{lineOf("cp-2", "main", 3, a().As(signing.Active))}, want: "host cp-2 does not have the next key", later: true,
		},
		"lost for good":          {lines: []Line{lineOf("cp-2", "main", 3, a().As(signing.Active))}, without: []string{"cp-2"}},
		"our own process, late":  {lines: []Line{lineOf("me", "main", 3, a().As(signing.Active))}, want: "host me does not have", later: true},
		"it cannot sign with it": {lines: []Line{blind}, want: "host cp-2 cannot sign with the next key", later: true},
		"newer":                  {lines: []Line{lineOf("cp-2", "main", 5, c().As(signing.Active))}, want: "is older than that of host cp-2"},
		"forked": {
			lines: []Line{lineOf("cp-2", "other", 4, a().As(signing.Active), c().As(signing.Next))}, want: "are forked",
		},
		"our own, before a restore": {lines: []Line{lineOf("me", "main", 9, c().As(signing.Active))}},
	} {
		next, _ := own.Next()
		err := Published{Lines: tc.lines}.MayUse(own, next, "me", tc.without, epoch)
		refusal, _ := errors.AsType[*ring.Refusal](err)
		if (err == nil) != (tc.want == "") || err != nil && (!strings.Contains(err.Error(), tc.want) || refusal.Later != tc.later) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

// TestCached: the wait counts from when the last host showed the key, not from when it was made.
func TestCached(t *testing.T) {
	t.Parallel()
	own := stateOf("main", 4, a().As(signing.Active), c().As(signing.Next))
	shown := func(host string, since time.Duration) Line {
		line := lineOf(host, "main", 4, a().As(signing.Active), c().As(signing.Next))
		line.NextSince = epoch.Add(since)
		return line
	}
	hidden := lineOf("cp-2", "main", 4, a().As(signing.Active), c().As(signing.Next))
	for name, tc := range map[string]struct {
		lines   []Line
		without []string
		want    string
		until   time.Duration
	}{
		"long enough": {lines: []Line{shown("cp-1", -time.Hour)}},
		"vault#11438: a second before it is due": {
			lines: []Line{shown("cp-1", time.Second-time.Hour)}, want: "host cp-1 publishes it since", until: time.Second,
		},
		"another host is later": {
			lines: []Line{shown("cp-1", -time.Hour), shown("cp-2", -time.Minute), shown("cp-3", -time.Hour)},
			want:  "host cp-2 publishes it since", until: 59 * time.Minute,
		},
		"a directory fails":        {lines: []Line{shown("cp-1", -time.Hour), hidden}, want: "is not published by host cp-2"},
		"one that is given up":     {lines: []Line{shown("cp-1", -time.Hour), hidden}, without: []string{"cp-2"}},
		"nobody shows it":          {want: "is not published by any live host"},
		"all of them are given up": {lines: []Line{hidden}, without: []string{"cp-2"}, want: "is not published by any live host"},
	} {
		err := Published{Lines: tc.lines}.Cached(own, tc.without, time.Hour, epoch)
		refusal, _ := errors.AsType[*ring.Refusal](err)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		} else if err != nil && (refusal.Breaks == "" || refusal.Later != (tc.until == 0) ||
			tc.until != 0 && !refusal.Until.Equal(epoch.Add(tc.until))) {
			t.Errorf("%s: %+v, want it until %s", name, refusal, tc.until)
		}
	}
}

// TestFollow: a key's time runs only from when no kube-apiserver signs with it, as far as that is known.
func TestFollow(t *testing.T) {
	t.Parallel()
	state := stateOf("main", 4, a().As(signing.Active), retired(b()))
	signer, late := lineOf("cp-1", "main", 4, a().As(signing.Active)), lineOf("cp-2", "main", 3, b().As(signing.Active))
	signer.Signer, late.Signer = true, true
	var p Published
	for i, step := range []struct {
		lines []Line
		hosts []string
		want  bool
	}{
		{[]Line{signer, late}, []string{"cp-1", "cp-2"}, false},
		{[]Line{signer}, []string{"cp-1", "cp-2"}, false}, // what that one signs with is unknown
		{[]Line{signer}, []string{"cp-1"}, true},
		{[]Line{signer, late}, []string{"cp-1", "cp-2"}, false}, // it came back
	} {
		p.Lines = step.lines
		p.follow(state, step.hosts, epoch)
		if _, got := p.Followed[b().ID()]; got != step.want {
			t.Errorf("step %d: followed %t", i, got)
		}
	}
	p.Followed = map[string]time.Time{b().ID(): epoch}
	p.follow(stateOf("main", 5, b().As(signing.Active), retired(a())), nil, epoch)
	if _, stale := p.Followed[b().ID()]; stale {
		t.Error("after a rollback the time of the retirement before it is kept")
	}
}

func TestProblems(t *testing.T) {
	t.Parallel()
	newest := lineOf("cp-1", "main", 5, c().As(signing.Active), a().As(signing.Next))
	newest.Changed = epoch.Add(-settled - time.Second)
	lately := newest
	lately.Changed = epoch
	for name, tc := range map[string]struct {
		lines []Line
		want  string
	}{
		"all have it":    {[]Line{newest, newest}, ""},
		"restored":       {[]Line{newest, lineOf("cp-2", "main", 1, b().As(signing.Active), a().As(signing.Next))}, "host-lacks-active-key"},
		"late":           {[]Line{newest, lineOf("cp-2", "main", 4, b().As(signing.Active), c().As(signing.Next))}, "host-lacks-next-key"},
		"not copied yet": {[]Line{lately, lineOf("cp-2", "main", 4, b().As(signing.Active), c().As(signing.Next))}, ""},
		"no next key":    {[]Line{lineOf("cp-1", "main", 5, c().As(signing.Active))}, "no-next-key"},
	} {
		var codes []string
		for _, problem := range (Published{Lines: tc.lines}).Problems(epoch) {
			codes = append(codes, problem.Code)
		}
		if got := strings.Join(codes, " "); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestRead(t *testing.T) {
	t.Parallel()
	line, err := json.Marshal(lineOf("cp-1", "main", 3, a().As(signing.Active)))
	testutil.Must(t, err)
	good := &corev1.Secret{Data: stateobject.Stamp(map[string][]byte{linePrefix + "replica-0": line})}
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
		"NoJSON":      {secret: with("replica.x", "{"), lines: 2, want: "replica.x: it is no published key ring"},
		"NoHistory":   {secret: with("replica.x", `{"host":"x"}`), lines: 2, want: "replica.x: it is no published key ring"},
		"BadPart":     {secret: with("removed", `{`), lines: 1, want: "removed: it is not as this program writes it"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := Read(tc.secret)
			if len(p.Lines) != tc.lines || (err != nil) != (tc.want != "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%d lines, %v; want %d and %q", len(p.Lines), err, tc.lines, tc.want)
			}
		})
	}
}
