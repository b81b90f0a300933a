// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sa-controller-manager/controllers/keyring/ring"
	"sa-controller-manager/internal/check"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
)

const (
	modelCacheAge = 10 * time.Second
	modelLifetime = time.Hour
	// modelFiles is how many keys a verification file has: the newest ones.
	modelFiles = 6
	// A walk of so many steps with each of so many seeds.
	modelSteps, modelSeeds = 100, 40
)

// model is control-plane hosts and what they have published. Commands change the file of a host, and nothing else
// happens by itself: a crash between two writes is a step that does not come. Each host has a clock of its own, up to an
// hour fast or slow. A host may join, with the ring or without it.
type model struct {
	random *rand.Rand
	now    time.Time
	hosts  []*modelHost
	p      Published
	etcd   []Published    // backups
	truth  []ring.Removed // what was revoked, and how it was not lost with a restore of file and etcd
	tokens []modelToken
	files  []signing.PublicKey // all keys there ever were; each process has the newest ones in a verification file, too
	begun  map[string]bool     // keys that were active in a file
	trace  []string
	broken error // the first rule that a command has broken
	why    error // the note of the last revocation, if it has made no key
}

// modelHost is a host with its process, which is the external signer of its kube-apiserver.
type modelHost struct {
	name   string
	file   ring.State // without a generation: none
	backup []ring.State
	helper bool // the process of the keys of an HSM runs
	live   bool
	clock  time.Duration // how fast it is
	used   ring.State    // the newest ring that it has published
	met    bool          // by a leader or a command
	gone   bool          // forgotten

	loaded  ring.State // by the process
	fetched Published  // by the process
	ring    *signing.Ring
	keys    *signing.KeySet // kube-apiserver verifies with them
	next    string          // shown since
	since   time.Time
	revoked []ring.Removed // revocations that the process knows

	// excused are the keys that the host may lack: they began to sign while it was dead or given up, or by a revocation,
	// which waits for nobody, or it was restored from a backup.
	excused map[string]bool
}

type modelToken struct {
	key     signing.PublicKey
	expires time.Time
}

func newModel(seed uint64) *model {
	m := &model{
		random: rand.New(rand.NewPCG(seed, 0)), now: time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC),
		begun: map[string]bool{},
	}
	for i := range 3 {
		m.hosts = append(m.hosts, &modelHost{
			name: fmt.Sprintf("h%d", i), helper: true, live: true, excused: map[string]bool{}, clock: time.Duration(i-1) * time.Hour,
		})
	}
	first, next := m.newKey(), m.newKey()
	state, err := ring.New(*first, nil, next, m.now)
	if err != nil {
		panic(err)
	}
	for _, h := range m.hosts {
		h.file = state.Clone()
	}
	m.began(first.ID, nil)
	m.syncAll()
	return m
}

// newKey is in the file or, one of three, in another process, with an ID of its own choice.
func (m *model) newKey() *ring.Key {
	private, err := signing.GenerateKey("P-256")
	if err != nil {
		panic(err)
	}
	n := len(m.files)
	m.files = append(m.files, private.Public())
	if m.random.IntN(3) == 0 {
		public := private.Public()
		public.ID = fmt.Sprintf("vendor/%d", n)
		private = signing.RemoteKey(fmt.Sprintf("k%d", n), public, nil)
	}
	key := ring.KeyOf(private)
	return &key
}

func (m *model) logf(format string, args ...any) {
	m.trace = append(m.trace, m.now.Format("15:04:05 ")+fmt.Sprintf(format, args...))
}

// fileOf is how a command or the process of a host sees its file.
func (h *modelHost) fileOf() File {
	file := File{Host: h.name, State: h.file}
	if h.file.Generation == 0 {
		file.Err = fs.ErrNotExist
	}
	return file
}

// sync is what a process does once it sees a change of its file or of what is published.
func (m *model) sync(h *modelHost) {
	if !h.live || h.file.Generation == 0 && h.loaded.Generation == 0 {
		return
	}
	if h.file.Generation > 0 && (h.file.Knows(h.loaded.Version()) || h.loaded.Generation == 0) {
		h.loaded = h.file.Clone()
	}
	m.meet()
	m.p.Revoke(slices.Concat(h.file.Revoked, h.loaded.Revoked, h.revoked))
	m.apply(h)
	c := &Controller{Config: Config{
		Host: h.name, Signer: true, State: func() ring.State { return h.loaded }, SignsWith: h.ring.ActiveID,
		Away: func(key ring.Key) (string, time.Duration) {
			if !key.PublicOnly && key.Private != nil && (key.Signer == "" || h.helper) {
				return "", 0
			}
			return "no helper", 0
		},
	}, started: m.now}
	present, _ := m.p.Entry(h.name)
	entry := c.entryFor(h.fileOf(), present, m.now.Add(h.clock))
	next, _ := h.file.Next()
	if next.ID != h.next {
		h.next, h.since = next.ID, m.now
	}
	entry.ShowsNext, entry.NextSeconds = next.ID != "", int64(m.now.Sub(h.since).Seconds())
	m.p.Entries = append(slices.DeleteFunc(slices.Clone(m.p.Entries), func(e Entry) bool { return e.Host == h.name }), entry)
	if h.file.Generation > 0 && (h.used.Generation == 0 || h.file.Knows(h.used.Version())) {
		h.used = h.file.Clone()
	}
	h.gone = false
	m.apply(h)
	if h == m.leader() {
		m.follow(h.loaded)
	}
}

// meet is what the leader and the commands see of kube-apiservers.
func (m *model) meet() {
	seen := Observed{Leases: map[string]string{}}
	for _, h := range m.hosts {
		if h.live {
			h.met = true
			seen.Leases[h.name] = m.now.Add(h.clock).String()
		}
	}
	m.p.Meet(seen)
}

func (m *model) apply(h *modelHost) {
	h.fetched = m.p
	h.fetched.Removed = slices.Clone(m.p.Removed)
	desired := m.p.Desired(h.loaded)
	h.revoked = ring.Union(h.revoked, desired.Revoked)
	desired.Revoked = h.revoked
	h.ring = h.loaded.Apply(desired)
	h.keys = signing.NewKeyring(h.ring, m.files[max(0, len(m.files)-modelFiles):]...).Keys()
}

func (m *model) follow(state ring.State) { m.p.follow(state, m.now) }

func (m *model) leader() *modelHost {
	for _, h := range m.hosts {
		if h.live && h.loaded.Generation > 0 {
			return h
		}
	}
	return nil
}

func (m *model) syncAll() {
	for range 2 {
		for _, h := range m.hosts {
			m.sync(h)
		}
	}
}

// sign has each host issue a token, unless its process refuses.
func (m *model) sign(h *modelHost) {
	if !h.live || h.ring == nil {
		return
	}
	active := h.ring.Active()
	file := h.fileOf()
	file.Process, file.SignsWith = true, h.ring.ActiveID()
	if active == nil || active.Signer() != "" && !h.helper || Stand(file, h.fetched).Refuses(check.Signs) != nil {
		return
	}
	if !m.begun[active.ID()] && (h.fetched.Removed.Has(h.loaded.Active().PublicKey) || h.loaded.Revoked.Has(h.loaded.Active().PublicKey)) {
		m.excuseAll(active.ID()) // each host goes on with its own next key
	}
	m.tokens = append(slices.DeleteFunc(m.tokens, func(t modelToken) bool { return t.key.ID == active.ID() || !t.expires.After(m.now) }),
		modelToken{active.Public(), m.now.Add(modelLifetime)})
}

// began notes that a key may sign from now on: the hosts that the user has given up may lack it.
func (m *model) began(id string, without []string) {
	m.begun[id] = true
	for _, h := range m.hosts {
		if h.gone || slices.Contains(without, h.name) {
			h.excused[id] = true
		}
	}
}

// heard returns an error if a command has ended with success although a host was not heard that was never forgotten.
func (m *model) heard(what string, without []string) {
	for _, h := range m.hosts {
		if !h.live && h.met && !h.gone && !slices.Contains(without, h.name) {
			m.broken = fmt.Errorf("%s ended with success while %s is away", what, h.name)
		}
	}
}

// excuseAll is for a key that begins to sign because another one was revoked: nobody is asked.
func (m *model) excuseAll(id string) {
	m.begun[id] = true
	for _, h := range m.hosts {
		h.excused[id] = true
	}
}

// check returns an error if a rule is broken.
func (m *model) check() error {
	if m.broken != nil {
		return m.broken
	}
	for _, h := range m.hosts {
		if fact, fallen := Stand(h.fileOf(), m.p).Fallen(); h.used.Generation > 0 && !h.gone && fallen == h.file.Knows(h.used.Version()) {
			return fmt.Errorf("%s has used generation %d, and its file has %d: noticed %t %s", h.name, h.used.Generation, h.file.Generation,
				fallen,
				fact.Message)
		}
		if !h.live || h.ring == nil {
			continue
		}
		for _, gone := range m.truth {
			for _, id := range []string{gone.ID, gone.Digest} {
				if _, verifies := h.keys.Lookup(id); verifies && h.fetched.Removed.Has(signing.PublicKey{ID: gone.ID}) {
					return fmt.Errorf("%s verifies with %s, which is revoked, as it has seen", h.name, id)
				}
			}
		}
		for _, token := range m.tokens {
			if m.p.Removed.Has(token.key) || !token.expires.After(m.now) || h.excused[token.key.ID] {
				continue
			}
			if _, verifies := h.keys.Lookup(token.key.ID); !verifies {
				return fmt.Errorf("%s refuses a token of %s, which nobody has revoked", h.name, token.key.ID)
			}
		}
	}
	return nil
}

// reached returns an error if a revoked key verifies anywhere once all hosts are reached.
func (m *model) reached() error {
	m.syncAll()
	for _, h := range m.hosts {
		for _, gone := range m.truth {
			if h.keys == nil || !h.live {
				continue
			}
			if _, verifies := h.keys.Lookup(gone.ID); verifies {
				return fmt.Errorf("%s verifies with %s, which is revoked", h.name, gone.ID)
			}
		}
	}
	return nil
}

// stranger puts a ring of another cluster on a host, which has been changed more often, and returns an error if it signs where
// more hosts have another one, or has one of those stop.
func (m *model) stranger() error {
	m.syncAll()
	h, side := m.hosts[m.random.IntN(len(m.hosts))], map[string]bool{}
	for _, entry := range m.p.Entries {
		if entry.Host != h.name && entry.File == "" && relate(ring.State{History: m.p.Entries[0].History}, entry) != apart {
			side[entry.Host] = true
		}
	}
	if len(side) < 2 {
		return nil
	}
	signers := func() (names []string) {
		m.tokens = nil
		for _, h := range m.hosts {
			if before := len(m.tokens); side[h.name] {
				if m.sign(h); len(m.tokens) > before {
					names = append(names, h.name)
				}
				m.tokens = nil
			}
		}
		return names
	}
	before := signers()
	state, err := ring.New(*m.newKey(), nil, m.newKey(), m.now)
	for err == nil && state.Generation < 60 {
		state, err = ring.Next(state, *m.newKey(), m.now)
	}
	if err != nil {
		return err
	}
	m.forget(h)
	m.restore(h, state)
	m.syncAll()
	after := signers()
	for _, name := range before {
		if !slices.Contains(after, name) {
			return fmt.Errorf("beside a ring of another cluster on %s %s signs nothing any more", h.name, name)
		}
	}
	m.sign(h)
	return m.check()
}

// The commands.

var errNotAccepted = errors.New("key cannot sign yet")

func (m *model) accepted(key ring.Key, without []string) error {
	if err := m.asked(without); err != nil {
		return err
	}
	for _, h := range m.hosts {
		if !h.live || h.keys == nil || slices.Contains(without, h.name) {
			continue
		}
		if _, verifies := h.keys.Lookup(key.ID); !verifies {
			return fmt.Errorf("%w: %s refuses it", errNotAccepted, h.name)
		}
	}
	return nil
}

// asked refuses while a kube-apiserver that is known cannot be asked.
func (m *model) asked(without []string) error {
	for _, h := range m.hosts {
		if !h.live && slices.Contains(m.p.APIServers(), h.name) && !slices.Contains(without, h.name) {
			return &ring.Refusal{Reason: "host " + h.name + " is not asked", Remedy: "give --without-host=" + h.name, Later: true}
		}
	}
	return nil
}

// change claims the next generation, and is killed then, now and then.
func (m *model) change(h *modelHost, without []string, transition func(ring.State) (ring.State, error)) error {
	after, err := transition(h.file.Clone())
	if err != nil {
		return err
	}
	if err := m.p.ClaimRing(h.file, h.name, without); err != nil {
		return err
	}
	if m.random.IntN(20) == 0 {
		m.logf("  killed after the claim")
		return nil
	}
	h.file = after
	return nil
}

func (m *model) mayUse(h *modelHost, key ring.Key, without []string) error {
	m.meet()
	return Stand(h.fileOf(), m.p, key).Refuses(check.Changes|check.Uses, without...)
}

func (m *model) mayChange(h *modelHost) error { return Stand(h.fileOf(), m.p).Refuses(check.Changes) }

func (m *model) rotate(h *modelHost, without []string) error {
	if err := Stand(h.fileOf(), m.p).Refuses(check.Changes, without...); err != nil {
		return err
	}
	next, _ := h.file.Next()
	if _, err := ring.Rotate(h.file, nil, m.now); err != nil {
		return err
	}
	if err := m.mayUse(h, next, without); err != nil {
		return err
	}
	if err := m.accepted(next, without); err != nil {
		return err
	}
	if err := m.p.Cached(h.file, without, modelCacheAge, m.now); err != nil {
		return err
	}
	successor := m.newKey()
	if m.random.IntN(4) == 0 {
		successor = nil
	}
	err := m.change(h, without, func(s ring.State) (ring.State, error) { return ring.Rotate(s, successor, m.now.Add(h.clock)) })
	if h.file.Active().ID == next.ID {
		m.began(next.ID, without)
		m.heard("rotate", without)
	}
	return err
}

func (m *model) rollback(h *modelHost) error {
	previous, ok := h.file.Key(h.file.Previous)
	if !ok {
		return errors.New("no rotation to roll back")
	}
	if err := m.mayUse(h, previous, nil); err != nil {
		return err
	}
	if err := m.accepted(previous, nil); err != nil {
		return err
	}
	if next, ok := h.file.Next(); ok && next.Kind() != previous.Kind() {
		if err := m.p.MayWithdraw(next); err != nil {
			return err
		}
	}
	return m.change(h, nil, func(s ring.State) (ring.State, error) { return ring.Rollback(s, m.now.Add(h.clock)) })
}

func (m *model) replaceNext(h *modelHost) error {
	if err := m.mayChange(h); err != nil {
		return err
	}
	if next, ok := h.file.Next(); ok {
		if err := m.p.MayWithdraw(next); err != nil {
			return err
		}
	}
	return m.change(h, nil, func(s ring.State) (ring.State, error) { return ring.Next(s, *m.newKey(), m.now.Add(h.clock)) })
}

// revoke publishes first, and may be killed before it has changed the file.
func (m *model) revoke(h *modelHost, without []string, ids ...string) error {
	var gone []ring.Removed
	for _, id := range ids {
		if record, ok := m.p.Revocation(id, h.file); ok {
			gone = append(gone, record)
		}
	}
	stands := Stand(h.fileOf(), m.p)
	m.p.Revoke(gone)
	m.truth = ring.Union(m.truth, gone)
	if m.random.IntN(4) == 0 {
		m.logf("  killed before the file was changed")
		return nil
	}
	if h.file.Generation == 0 {
		return nil
	}
	gone = ring.Union(m.p.Removed, gone)
	if m.why = stands.Refuses(check.Makes, without...); m.why == nil {
		m.why = m.p.ClaimRing(h.file, h.name, without)
	}
	if m.why != nil {
		h.file.Revoked = ring.Union(h.file.Revoked, gone)
		return nil //nolint:nilerr // it is a note
	}
	after, err := ring.Revoke(h.file, gone, m.newKey(), m.newKey(), m.now.Add(h.clock))
	if err != nil {
		return err
	}
	h.file = after
	if id := after.Active().ID; !m.begun[id] {
		m.excuseAll(id)
	}
	if m.asked(without) == nil {
		m.heard("revoke", without)
	}
	return nil
}

func (m *model) pruneAll(h *modelHost) error {
	if h.file.Generation == 0 {
		return errors.New("there is none")
	}
	if err := cmp.Or(m.mayUse(h, h.file.Active(), nil), m.asked(nil)); err != nil {
		return err
	}
	m.heard("prune", nil)
	m.follow(h.file)
	for _, key := range h.file.Retired() {
		usage := ring.Usage{Signer: m.p.Signer(key.ID), Since: m.p.Followed[key.ID]}
		err := m.change(h, nil, func(s ring.State) (ring.State, error) {
			return ring.Prune(s, key.ID, usage, m.now.Add(h.clock), ring.Policy{TokenLifetime: modelLifetime})
		})
		if err == nil {
			m.logf("  pruned %s", key.ID)
		}
	}
	return nil
}

// copyRing is keys import of another host's file.
func (m *model) copyRing(from, to *modelHost) error {
	if from.file.Generation == 0 {
		return errors.New("there is none")
	}
	copied := from.fileOf()
	copied.Host = to.name
	if fact, fallen := Stand(copied, m.p).Fallen(); fallen {
		return errors.New(fact.Message)
	}
	if !Stand(copied, m.p).Follows() {
		return errors.New("it does not come from any")
	}
	if to.file.Generation > 0 && !from.file.Knows(to.file.Version()) {
		return errors.New("it does not come from the one there")
	}
	revoked := ring.Union(ring.Union(from.file.Revoked, to.file.Revoked), m.p.Removed)
	to.file = from.file.Clone()
	to.file.Revoked = revoked
	return nil
}

func (m *model) join(from, to *modelHost) error {
	if to.file.Generation == 0 || from.file.Generation == 0 {
		return errors.New("there is none")
	}
	state := to.file.Clone()
	state.Revoked = ring.Union(state.Revoked, m.p.Removed)
	after, err := ring.Join(state, from.file, m.newKey(), m.now.Add(to.clock))
	if err != nil {
		return err
	}
	if after.Active().ID != to.file.Active().ID { // the other one has revoked it
		m.excuseAll(after.Active().ID)
	}
	to.file = after
	return nil
}

// acceptOlder is keys import --accept-older of the file itself.
func (m *model) acceptOlder(h *modelHost) error {
	stands := Stand(h.fileOf(), m.p)
	if _, fallen := stands.Fallen(); !fallen || stands.Holder() != "" || h.file.Generation == 0 {
		return errors.New("it is not for that")
	}
	own, _ := m.p.Entry(h.name)
	old := h.file.Clone()
	old.Revoked = ring.Union(old.Revoked, m.p.Removed)
	after, err := ring.AcceptOlder(old, own.Generation, own.History, stands.Active(), m.newKey(), m.now.Add(h.clock))
	if err != nil {
		return err
	}
	after.Revoked = ring.Union(after.Revoked, m.p.Removed)
	h.file = after
	m.excuseEvery() // what only the lost ring had is lost
	return nil
}

// restore starts the process of a host with an older file, or none. The keys that sign now are not all in it.
func (m *model) restore(h *modelHost, file ring.State) {
	h.file, h.loaded, h.ring, h.keys, h.revoked = file.Clone(), ring.State{}, nil, nil, nil
	h.live = true
	m.loseRevocations()
	for id := range m.begun {
		h.excused[id] = true
	}
	m.sync(h)
	m.sync(h)
}

// restoreEtcd brings back what was published. A revocation that no file and no process knows is lost then.
func (m *model) restoreEtcd(p Published) {
	m.p = p
	m.loseRevocations()
	for _, h := range m.hosts {
		h.used, h.met = ring.State{}, slices.Contains(p.APIServers(), h.name) // what etcd knows is older, too
		if own, known := p.Entry(h.name); known {
			h.used.Generation, h.used.History = own.Generation, own.History
		}
	}
	m.excuseEvery()
}

// loseRevocations forgets those that neither etcd nor a file nor a process knows any more.
func (m *model) loseRevocations() {
	kept := slices.Clone(m.p.Removed)
	for _, h := range m.hosts {
		if h.live {
			kept = ring.Union(kept, ring.Union(h.file.Revoked, h.revoked))
		}
	}
	m.truth = slices.DeleteFunc(m.truth, func(gone ring.Removed) bool { return !slices.Contains(kept, gone) })
}

func (m *model) excuseEvery() {
	for _, h := range m.hosts {
		for id := range m.begun {
			h.excused[id] = true
		}
	}
}

func (m *model) forget(h *modelHost) {
	m.p.Forget(h.name, m.now.Add(h.clock).String())
	h.gone, h.used = true, ring.State{}
	for id := range m.begun {
		h.excused[id] = true
	}
}

// step takes one step at random.
func (m *model) step() {
	h, other := m.hosts[m.random.IntN(len(m.hosts))], m.hosts[m.random.IntN(len(m.hosts))]
	m.now = m.now.Add(time.Duration(m.random.IntN(15)) * time.Second)
	attempt := func(name string, err error) {
		if err != nil {
			m.logf("%s %s: refused: %v", h.name, name, err)
			return
		}
		m.logf("%s %s: generation %d, %s signs", h.name, name, h.file.Generation, h.file.Active().ID)
	}
	switch n := m.random.IntN(100); {
	case n < 20:
		m.syncAll()
	case n < 30:
		m.sync(h)
	case n < 45:
		attempt("rotate", m.rotate(h, nil))
	case n < 60:
		if h != other {
			attempt("copied from "+other.name, m.copyRing(other, h))
		}
	case n < 64:
		attempt("next", m.replaceNext(h))
	case n < 69:
		attempt("rollback", m.rollback(h))
	case n < 72:
		if len(h.file.Keys) > 0 {
			key := h.file.Keys[m.random.IntN(len(h.file.Keys))]
			attempt(fmt.Sprintf("revoke %s (%s)", key.ID, key.Role), m.revoke(h, nil, key.ID))
		} else if active := Stand(h.fileOf(), m.p).Active(); active != "" {
			gone, _ := m.p.Revocation(active, h.file) // the file is lost
			m.p.Revoke([]ring.Removed{gone})
			m.truth = ring.Union(m.truth, []ring.Removed{gone})
			m.logf("%s revoke %s, without a file", h.name, active)
		}
	case n < 78:
		attempt("prune", m.pruneAll(h))
	case n < 80:
		m.etcd = append(m.etcd, m.clone().p)
	case n < 81:
		if len(m.etcd) > 0 {
			m.restoreEtcd(m.etcd[m.random.IntN(len(m.etcd))])
			m.logf("etcd restored")
		}
	case n < 82:
		h.backup = append(h.backup, h.file.Clone())
	case n < 84:
		if len(h.backup) > 0 {
			m.restore(h, h.backup[m.random.IntN(len(h.backup))])
			m.logf("%s restored, generation %d", h.name, h.file.Generation)
		}
	case n < 86:
		if h != other {
			attempt("joined with "+other.name, m.join(other, h))
		}
	case n < 89:
		m.now = m.now.Add(time.Duration(m.random.IntN(90)) * time.Minute)
		m.syncAll()
	case n < 92:
		h.helper = !h.helper
	case n < 95:
		h.live, h.loaded, h.ring, h.keys = false, ring.State{}, nil, nil
		h.revoked = nil
		m.loseRevocations()
		m.logf("%s is dead", h.name)
	case n < 96:
		if !h.live {
			m.forget(h)
			m.logf("%s forgotten", h.name)
		}
	case n < 97:
		if attempt("accept older", m.acceptOlder(h)); len(m.hosts) < 4 {
			joined := &modelHost{name: "h3", helper: true, live: true, excused: map[string]bool{}, clock: 30 * time.Minute}
			m.hosts = append(m.hosts, joined)
			for id := range m.begun {
				joined.excused[id] = true // until it has a ring
			}
			m.logf("h3 joins")
		}
	case !h.live:
		m.logf("%s is back, generation %d", h.name, h.file.Generation)
		h.live = true
		m.sync(h)
		m.sync(h)
	}
	for _, h := range m.hosts {
		m.sign(h)
	}
}

// hostNamed is the host that a refusal is about.
var hostNamed = regexp.MustCompile(`(?:host |without-host=)(h\d)`)

func (m *model) named(err error) *modelHost {
	found := hostNamed.FindStringSubmatch(err.Error())
	if found == nil {
		return nil
	}
	return m.hosts[slices.IndexFunc(m.hosts, func(h *modelHost) bool { return h.name == found[1] })]
}

// attempt returns nil once one of several ways has led out.
func attempt(ways ...func() error) (err error) {
	for _, way := range ways {
		if err = way(); err == nil {
			return nil
		}
	}
	return err
}

// wayOut does what the refusals of rotate say until it is not refused.
func (m *model) wayOut() error {
	h := m.leader()
	if h == nil {
		return nil
	}
	var without []string
	var said []string
	for range 40 {
		generation := h.file.Generation
		err := m.rotate(h, without)
		if err == nil && h.file.Generation > generation {
			return nil
		}
		if err == nil {
			continue // killed
		}
		said = append(said, err.Error())
		refusal, _ := errors.AsType[*ring.Refusal](err)
		about := m.named(err)
		switch {
		case about != nil && (!about.live || about.file.Generation == 0) && strings.Contains(err.Error(), "--without-host="+about.name):
			without, err = append(without, about.name), nil
		case strings.Contains(err.Error(), "keys import --accept-older"):
			if h.file.Generation == 0 {
				return nil // nobody has a copy
			}
			err = m.acceptOlder(h)
		case strings.Contains(err.Error(), "keys list there says what to do"):
			err = attempt(func() error { return m.copyRing(h, about) }, func() error { return m.acceptOlder(about) },
				func() error { return m.join(h, about) })
		case strings.Contains(err.Error(), "bring the ring of host"):
			err = attempt(func() error { return m.copyRing(about, h) }, func() error { return m.join(about, h) })
		case strings.Contains(err.Error(), "make the change there"):
			if err = m.copyRing(about, h); err != nil || h.file.Generation == generation {
				h, err = about, nil
			}
		case strings.Contains(err.Error(), "keys revoke "):
			err = m.revoke(h, without)
			if m.why != nil {
				about = m.named(m.why)
				if !about.live {
					without = append(without, about.name)
				} else if _ = attempt(func() error { return m.copyRing(about, h) }, func() error {
					return m.join(about,
						h)
				}); h.file.Generation == generation {
					h = about
				}
			}
		case strings.Contains(err.Error(), "keys import --join-fork"):
			err = m.join(about, h)
		case strings.Contains(err.Error(), "bring that one here"):
			err = m.copyRing(about, h)
		case strings.Contains(err.Error(), "bring the ring there"):
			err = m.copyRing(h, about)
		case strings.Contains(err.Error(), "see key-backends"):
			about.helper, err = true, nil
		case strings.Contains(err.Error(), "keys next"):
			err = m.replaceNext(h)
		case refusal != nil && !refusal.Until.IsZero():
			m.now, err = refusal.Until, nil
		case refusal != nil && refusal.Later:
			m.now, err = m.now.Add(time.Minute), nil
		default:
			err = nil // kube-apiserver follows when the processes do
		}
		if err != nil {
			said = append(said, "  and what it says is refused: "+err.Error())
			if strings.Contains(err.Error(), "make the change there") {
				h = m.named(err)
			}
			m.now = m.now.Add(time.Minute) // another command may be at work
		}
		m.syncAll()
	}
	return fmt.Errorf("rotate has no way out:\n%s", strings.Join(said[len(said)-6:], "\n"))
}

// walk returns the first error of a walk, and the steps to it.
func walk(seed uint64) error {
	m := newModel(seed)
	for i := range modelSteps {
		m.step()
		err := m.check()
		if err == nil && i%20 == 9 {
			err = m.clone().reached()
		}
		if err == nil && i%20 == 14 {
			err = m.clone().stranger()
		}
		if err == nil && i%20 == 19 {
			err = m.clone().wayOut()
		}
		if err != nil {
			var aliases []string
			for i, key := range m.files {
				aliases = append(aliases, key.ID, fmt.Sprintf("k%d", i))
			}
			story := strings.Join(append(m.trace[max(0, len(m.trace)-40):], err.Error()), "\n")
			return fmt.Errorf("seed %d:\n%s", seed, strings.NewReplacer(aliases...).Replace(story))
		}
	}
	return nil
}

// clone is for an experiment.
func (m *model) clone() *model {
	other := *m
	other.hosts = nil
	for _, h := range m.hosts {
		same := *h
		same.excused = maps.Clone(h.excused)
		other.hosts = append(other.hosts, &same)
	}
	other.p.Hosts, other.p.Followed = maps.Clone(m.p.Hosts), maps.Clone(m.p.Followed)
	other.p.Removed, other.p.Entries = slices.Clone(m.p.Removed), slices.Clone(m.p.Entries)
	other.truth = slices.Clone(m.truth)
	other.begun, other.files, other.trace = maps.Clone(m.begun), slices.Clone(m.files), slices.Clone(m.trace)
	other.random = rand.New(rand.NewPCG(uint64(len(m.trace)), 1))
	return &other
}

// TestThreeHosts walks random commands of two operators, copies of ring files, backups of files and of etcd that are
// restored, crashes between two writes, dead, late, forgotten and joining hosts, and wrong clocks. No host refuses the
// token of another one for want of a key; no revoked key verifies where its revocation was seen, and none anywhere once
// every host is reached, unless file and etcd came from before it; no command ends with success while a host is away;
// an older file is always noticed; and rotate always has a way out.
func TestThreeHosts(t *testing.T) {
	t.Parallel()
	for seed := range uint64(modelSeeds) {
		testutil.Must(t, walk(seed))
	}
}
