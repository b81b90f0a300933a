// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package consistency

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/ring"
)

const (
	modelCacheAge = 10 * time.Second
	modelLifetime = time.Hour
	// modelFiles is how many keys a verification file has: the newest ones.
	modelFiles = 6
	// A walk of so many steps with each of so many seeds.
	modelSteps, modelSeeds = 100, 40
)

// rules are those of the product that the model walks by. A planted mistake replaces one.
type rules struct {
	mayUse  func(p Published, own ring.State, key ring.Key, host string, without []string, now time.Time) error
	obeying func(own ring.State, orders ring.Orders) *signing.Ring
	prune   func(state ring.State, id string, usage ring.Usage, now time.Time, policy ring.Policy) (ring.State, error)
	verify  func(ring *signing.Ring, files []signing.PublicKey) *signing.KeySet
	// accepts is whether kube-apiservers are asked.
	accepts bool
}

func productRules() rules {
	return rules{
		accepts: true, mayUse: Published.MayUse, obeying: ring.State.Obeying, prune: ring.Prune,
		verify: func(ring *signing.Ring, files []signing.PublicKey) *signing.KeySet {
			return signing.NewKeyring(ring, files...).Keys()
		},
	}
}

// model is three control-plane hosts and what they have published. Commands change the file of a host, and
// nothing else happens by itself: a crash between the change and its publication is a step that does not come.
type model struct {
	rules

	random *rand.Rand
	now    time.Time
	hosts  []*modelHost
	p      Published
	tokens []modelToken
	files  []signing.PublicKey // all keys there ever were; each process has the newest ones in a verification file, too
	begun  map[string]bool     // keys that were active in a file
	trace  []string
}

// modelHost is a host with its process, which is the external signer of its kube-apiserver.
type modelHost struct {
	name   string
	file   ring.State // without a generation: none
	backup []ring.State
	helper bool // the process of the keys of an HSM runs
	live   bool

	loaded  ring.State // by the process
	fetched Published  // by the process
	ring    *signing.Ring
	keys    *signing.KeySet // kube-apiserver verifies with them
	next    string          // shown since
	since   time.Time

	// excused are the keys that the host may lack: they began to sign while it was dead or given up, or by a revocation,
	// which waits for nobody, or it was restored from a backup.
	excused map[string]bool
}

type modelToken struct {
	key     signing.PublicKey
	expires time.Time
}

func newModel(seed uint64, product rules) *model {
	m := &model{
		rules: product, random: rand.New(rand.NewPCG(seed, 0)), now: time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC), begun: map[string]bool{},
	}
	for i := range 3 {
		m.hosts = append(m.hosts, &modelHost{name: fmt.Sprintf("h%d", i), helper: true, live: true, excused: map[string]bool{}})
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

// sync is what a process does once it sees a change of its file or of what is published.
func (m *model) sync(h *modelHost) {
	if !h.live || h.file.Generation == 0 {
		return
	}
	if h.file.Knows(h.loaded.Version()) || h.loaded.Generation == 0 {
		h.loaded = h.file.Clone()
	}
	m.obey(h)
	line := LineOf(h.loaded)
	line.Replica, line.Host, line.Signer, line.Renewed = h.name, h.name, true, m.now
	line.SignsWith = h.ring.ActiveID()
	for _, key := range h.loaded.Keys {
		if !key.PublicOnly && key.Private != nil && (key.Signer == "" || h.helper) {
			line.Signs = append(line.Signs, key.ID)
		}
	}
	if next := line.key(signing.Next); next != h.next {
		h.next, h.since = next, m.now
	}
	line.NextSince = h.since
	m.p.Lines = append(slices.DeleteFunc(slices.Clone(m.p.Lines), func(l Line) bool { return l.Host == h.name }), line)
	m.p.Revoke(h.loaded.Removed)
	m.obey(h)
	if h == m.leader() {
		m.follow(h.loaded)
	}
}

func (m *model) obey(h *modelHost) {
	h.fetched = m.p
	h.fetched.Removed = slices.Clone(m.p.Removed)
	h.ring = m.obeying(h.loaded, m.p.Orders(h.loaded, h.name))
	h.keys = m.verify(h.ring, m.files[max(0, len(m.files)-modelFiles):])
}

func (m *model) follow(state ring.State) {
	var live []string
	for _, h := range m.hosts {
		if h.live {
			live = append(live, h.name)
		}
	}
	m.p.follow(state, live, m.now)
}

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
	if active == nil || active.Signer() != "" && !h.helper ||
		h.fetched.compare(h.loaded, h.name, active.ID(), m.now).drift == lost {
		return
	}
	if !m.begun[active.ID()] && h.fetched.Revoked(h.loaded.Active().PublicKey) {
		m.excuseAll(active.ID()) // each host goes on with its own next key
	}
	m.tokens = append(slices.DeleteFunc(m.tokens, func(t modelToken) bool { return t.key.ID == active.ID() || !t.expires.After(m.now) }),
		modelToken{active.Public(), m.now.Add(modelLifetime)})
}

// began notes that a key may sign from now on: the hosts that nobody has asked may lack it.
func (m *model) began(id string, without []string) {
	m.begun[id] = true
	live := m.p.Live(m.now)
	for _, h := range m.hosts {
		asked := slices.ContainsFunc(live, func(line Line) bool { return line.Host == h.name })
		if !asked || slices.Contains(without, h.name) {
			h.excused[id] = true
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
	for _, h := range m.hosts {
		if !h.live || h.ring == nil {
			continue
		}
		for _, gone := range h.fetched.Removed {
			for _, id := range []string{gone.ID, gone.Digest} {
				if _, verifies := h.keys.Lookup(id); verifies {
					return fmt.Errorf("%s verifies with %s, which is revoked, as it has seen", h.name, id)
				}
			}
		}
		for _, token := range m.tokens {
			if m.p.Revoked(token.key) || !token.expires.After(m.now) || h.excused[token.key.ID] {
				continue
			}
			if _, verifies := h.keys.Lookup(token.key.ID); !verifies {
				return fmt.Errorf("%s refuses a token of %s, which nobody has revoked", h.name, token.key.ID)
			}
		}
	}
	return nil
}

// The commands.

var errNotAccepted = errors.New("key cannot sign yet")

func (m *model) accepted(key ring.Key, without []string) error {
	for _, h := range m.hosts {
		if !m.accepts || !h.live || h.keys == nil || slices.Contains(without, h.name) {
			continue
		}
		if _, verifies := h.keys.Lookup(key.ID); !verifies {
			return fmt.Errorf("%w: %s refuses it", errNotAccepted, h.name)
		}
	}
	return nil
}

// change claims the next generation, and is killed then, now and then.
func (m *model) change(h *modelHost, transition func(ring.State) (ring.State, error)) error {
	after, err := transition(h.file.Clone())
	if err != nil {
		return err
	}
	if err := m.p.ClaimRing(h.file, h.name, m.now); err != nil {
		return err
	}
	if m.random.IntN(20) == 0 {
		m.logf("  killed after the claim")
		return nil
	}
	h.file = after
	return nil
}

func (m *model) rotate(h *modelHost, without []string) error {
	next, _ := h.file.Next()
	if _, err := ring.Rotate(h.file, nil, m.now); err != nil {
		return err
	}
	if err := m.mayUse(m.p, h.file, next, h.name, without, m.now); err != nil {
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
	err := m.change(h, func(s ring.State) (ring.State, error) { return ring.Rotate(s, successor, m.now) })
	if h.file.Active().ID == next.ID {
		m.began(next.ID, without)
	}
	return err
}

func (m *model) rollback(h *modelHost) error {
	previous, ok := h.file.Key(h.file.Previous)
	if !ok {
		return errors.New("nothing to go back to")
	}
	if err := m.mayUse(m.p, h.file, previous, h.name, nil, m.now); err != nil {
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
	return m.change(h, func(s ring.State) (ring.State, error) { return ring.Rollback(s, m.newKey(), m.now) })
}

func (m *model) replaceNext(h *modelHost) error {
	if next, ok := h.file.Next(); ok {
		if err := m.p.MayWithdraw(next); err != nil {
			return err
		}
	}
	return m.change(h, func(s ring.State) (ring.State, error) { return ring.Next(s, *m.newKey(), m.now) })
}

// revoke changes the file first, and may be killed before it has published that.
func (m *model) revoke(h *modelHost, ids ...string) error {
	after, err := ring.Revoke(h.file, ids, m.newKey(), m.newKey(), m.now)
	if err != nil {
		return err
	}
	h.file = after
	if id := after.Active().ID; !m.begun[id] {
		m.excuseAll(id)
	}
	if m.random.IntN(3) > 0 {
		m.p.Revoke(after.Removed)
	}
	return nil
}

func (m *model) pruneAll(h *modelHost) error {
	m.follow(h.file)
	for _, key := range h.file.Retired() {
		usage := ring.Usage{Signer: Signer(m.p.Live(m.now), key.ID), Since: m.p.Followed[key.ID]}
		err := m.change(h, func(s ring.State) (ring.State, error) {
			return m.prune(s, key.ID, usage, m.now, ring.Policy{TokenLifetime: modelLifetime})
		})
		if err == nil {
			m.logf("  pruned %s", key.ID)
		}
	}
	return nil
}

// copyRing is keys import.
func (m *model) copyRing(from, to *modelHost) error {
	if to.file.Generation > 0 && !from.file.Knows(to.file.Version()) {
		return errors.New("it does not come from the one there")
	}
	to.file = from.file.Clone()
	return nil
}

func (m *model) join(from, to *modelHost) error {
	after, err := ring.Join(to.file, from.file, m.now)
	if err != nil {
		return err
	}
	if after.Active().ID != to.file.Active().ID { // the other one has revoked it
		m.excuseAll(after.Active().ID)
	}
	to.file = after
	return nil
}

// restore starts the process of a host with an older file. The keys that sign now are not all in it.
func (m *model) restore(h *modelHost, file ring.State) {
	h.file, h.loaded, h.ring, h.keys = file.Clone(), ring.State{}, nil, nil
	h.live = true
	for id := range m.begun {
		h.excused[id] = true
	}
	m.sync(h)
	m.sync(h)
}

// step takes one step at random.
func (m *model) step() {
	h, other := m.hosts[m.random.IntN(3)], m.hosts[m.random.IntN(3)]
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
		key := h.file.Keys[m.random.IntN(len(h.file.Keys))]
		attempt(fmt.Sprintf("revoke %s (%s)", key.ID, key.Role), m.revoke(h, key.ID))
	case n < 78:
		attempt("prune", m.pruneAll(h))
	case n < 81:
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
		m.logf("%s is dead", h.name)
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
		var about *modelHost
		if found := hostNamed.FindStringSubmatch(err.Error()); found != nil {
			about = m.hosts[slices.IndexFunc(m.hosts, func(h *modelHost) bool { return h.name == found[1] })]
		}
		switch {
		case about != nil && !about.live && strings.Contains(err.Error(), "--without-host="+about.name):
			without, err = append(without, about.name), nil
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
			m.now, err = m.now.Add(claimAge), nil
		default:
			err = nil // kube-apiserver follows when the processes do
		}
		if err != nil {
			said = append(said, "  and what it says is refused: "+err.Error())
			m.now = m.now.Add(claimAge) // another command may be at work
		}
		m.syncAll()
	}
	return fmt.Errorf("rotate has no way out:\n%s", strings.Join(said[len(said)-6:], "\n"))
}

// walk returns the first error of a walk, and the steps to it.
func walk(seed uint64, product rules) error {
	m := newModel(seed, product)
	for i := range modelSteps {
		m.step()
		err := m.check()
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
	other.p.Followed = maps.Clone(m.p.Followed)
	other.p.Removed, other.p.Lines = slices.Clone(m.p.Removed), slices.Clone(m.p.Lines)
	other.begun, other.files, other.trace = maps.Clone(m.begun), slices.Clone(m.files), slices.Clone(m.trace)
	other.random = rand.New(rand.NewPCG(uint64(len(m.trace)), 1))
	return &other
}

// TestThreeHosts walks random commands, copies of ring files, backups that are restored, crashes and dead hosts. No
// host refuses the token of another one for want of a key, no revoked key verifies where its revocation was seen,
// and rotate always has a way out.
func TestThreeHosts(t *testing.T) {
	t.Parallel()
	for seed := range uint64(modelSeeds) {
		if err := walk(seed, productRules()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestThreeHostsFindsMistakes plants a mistake in one rule at a time.
func TestThreeHostsFindsMistakes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		plant func(*rules)
		want  string
	}{
		"rotate asks no host": {func(r *rules) {
			r.accepts = false
			r.mayUse = func(Published, ring.State, ring.Key, string, []string, time.Time) error { return nil }
		}, "refuses a token of"},
		"revocations are not followed": {func(r *rules) {
			r.obeying = func(own ring.State, orders ring.Orders) *signing.Ring {
				return own.Obeying(ring.Orders{Active: orders.Active})
			}
		}, "which is revoked"},
		"verification files bring keys back": {func(r *rules) {
			r.verify = func(ring *signing.Ring, files []signing.PublicKey) *signing.KeySet {
				return signing.NewKeyring(ring.Without(nil), files...).Keys()
			}
		}, "which is revoked"},
		"prune does not wait": {func(r *rules) {
			r.prune = func(s ring.State, id string, _ ring.Usage, now time.Time, _ ring.Policy) (ring.State, error) {
				return ring.Prune(s, id, ring.Usage{}, now.Add(ring.HoldDown), ring.Policy{})
			}
		}, "refuses a token of"},
		"a dead host counts": {func(r *rules) {
			r.mayUse = func(p Published, own ring.State, key ring.Key, host string, _ []string, now time.Time) error {
				return p.MayUse(own, key, host, nil, now)
			}
		}, "no way out"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			planted := productRules()
			tc.plant(&planted)
			for seed := range uint64(modelSeeds) {
				if err := walk(seed, planted); err != nil {
					if !strings.Contains(err.Error(), tc.want) {
						t.Errorf("found %v, want %q", err, tc.want)
					}
					return
				}
			}
			t.Error("not found")
		})
	}
}
