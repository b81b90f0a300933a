// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package consistency

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/metrics"

	"sa-controller-manager/internal/apiservers"
	"sa-controller-manager/internal/reconcile"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/published"
	"sa-controller-manager/signing/ring"
)

const (
	// AtAPIServer is the place at which kube-apiserver publishes its keys.
	AtAPIServer = "kube-apiserver"

	// readInterval is how often places are read, and shortInterval while one lacks the next key.
	readInterval  = 30 * time.Second
	shortInterval = 2 * time.Second
	// maxGap is the longest time without an answer that is no break: in a longer one a cache may have read
	// something else.
	maxGap = 2 * time.Minute
)

// WatcherConfig is what a Watcher needs.
type WatcherConfig struct {
	Client kubernetes.Interface
	State  func() ring.State
	// Issuers are the URLs that must have the keys, and Optional those that count from their first
	// answer on.
	Issuers, Optional []string
	Read              func(ctx context.Context, issuer string) (published.Answer, error)
	// MustRegister registers the series, such as legacyregistry.MustRegister.
	MustRegister func(...metrics.Registerable)
	Loops        *reconcile.Metrics
}

// Watcher publishes, on the leader, since when each place shows each key, and since when nothing signs with
// a retired one: what a rotation and a prune wait for, so that it outlives every process.
type Watcher struct {
	WatcherConfig
	loop     *reconcile.Runner[string]
	drift    *metrics.GaugeVec
	answered map[string]time.Time // when each place answered last; only the one worker uses it
}

// NewWatcher returns one that does not run yet.
func NewWatcher(config WatcherConfig) *Watcher {
	w := &Watcher{WatcherConfig: config, answered: map[string]time.Time{}, drift: metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: "sacm_published_issuer_drift",
		Help: "1 while a --published-issuer lacks a key of the ring that may have signed, or cannot be read, else 0. Only the leader has it.",
	}, []string{"issuer"})}
	config.MustRegister(w.drift)
	w.loop = reconcile.New(reconcile.Config[string]{Name: "published_places", Workers: 1, Sync: w.sync, Metrics: config.Loops})
	return w
}

// RingChanged must be called after the ring has changed. It does not block.
func (w *Watcher) RingChanged(context.Context) { w.loop.AddIfRunning(comparing) }

// Run reads until ctx ends.
func (w *Watcher) Run(ctx context.Context) error {
	clear(w.answered) // another one may have watched since
	w.loop.Add(comparing)
	w.loop.Run(ctx)
	w.drift.Reset() // the next leader has it
	return nil
}

// answer is what a place has said.
type answer struct {
	published.Answer
	err      error
	optional bool // it counts from its first answer on
}

func (w *Watcher) sync(ctx context.Context, _ string) error {
	state := w.State()
	answers := map[string]answer{}
	for _, issuer := range slices.Concat(w.Issuers, w.Optional) {
		found, err := w.Read(ctx, issuer)
		answers[issuer] = answer{found, err, slices.Contains(w.Optional, issuer)}
	}
	document, err := apiservers.Getter(w.Client)(ctx, signing.JWKSPath)
	var keys []signing.PublicKey
	if err == nil {
		keys, err = signing.ParseJWKS(document)
	}
	answers[AtAPIServer] = answer{published.Answer{Keys: keys}, err, true}
	hosts, err := apiservers.LiveHosts(ctx, w.Client, time.Now())
	if err != nil {
		return err
	}
	again := readInterval
	err = Edit(ctx, w.Client, func(p *Published) error {
		again = w.see(p, state, answers, time.Now())
		p.follow(state, hosts, time.Now())
		return nil
	})
	w.loop.AddAfter(comparing, again)
	return err
}

// see records the answers, and returns when to ask again.
func (w *Watcher) see(p *Published, state ring.State, answers map[string]answer, now time.Time) (again time.Duration) {
	again = readInterval
	state = state.Clone()
	state.Keys = slices.DeleteFunc(state.Keys, func(key ring.Key) bool { return p.Revoked(key.PublicKey) }) // another host may have
	next, _ := state.Next()
	places := map[string]Place{}
	for name, place := range p.Places {
		if _, read := answers[name]; read || place.Manual {
			places[name] = place
		}
	}
	for name, answer := range answers {
		place, known := places[name]
		if !known && answer.optional && answer.err != nil {
			continue
		}
		if last := w.answered[name]; answer.err == nil {
			if !last.IsZero() && now.Sub(last) > maxGap {
				place.Keys = nil
			}
			w.answered[name] = now
		}
		place = place.after(state, answer, now)
		if _, shown := place.Keys[next.ID]; next.ID != "" && !shown && answer.err == nil {
			again = shortInterval
		}
		if name != AtAPIServer {
			value := 0.0
			if place.Problem != "" {
				value = 1
			}
			w.drift.WithLabelValues(name).Set(value)
		}
		places[name] = place
	}
	p.Places = places
	return again
}

// after returns the place as an answer leaves it.
func (p Place) after(state ring.State, answer answer, now time.Time) Place {
	if p.Problem = ""; answer.err != nil {
		p.Problem = answer.err.Error()
		return p
	}
	keys := map[string]time.Time{}
	for _, key := range state.Keys {
		result, detail := published.Find(key.PublicKey, answer.Keys)
		switch since, known := p.Keys[key.ID]; {
		case result == published.Same && known:
			keys[key.ID] = since
		case result == published.Same:
			keys[key.ID] = now.UTC().Truncate(time.Second)
		case key.Role != signing.Next || result != published.Missing:
			p.Problem = fmt.Sprintf("%s key %s: %s", key.Role, key.ID, detail)
		}
	}
	p.Keys = keys
	// A copy from before a header was shortened may live on; "keys publish forget" forgets it.
	p.CacheSeconds = max(p.CacheSeconds, int64(answer.CacheAge.Seconds()))
	return p
}

// AddManual adds a place where a person publishes the keys, of which none is confirmed.
func (p *Published) AddManual(name string) error {
	notName := func(r rune) bool {
		return (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.", r)
	}
	switch _, known := p.Places[name]; {
	case known:
		return &ring.Refusal{Reason: name + " is a place already", Remedy: "nothing to do", Done: true}
	case name == "" || len(name) > 63 || strings.ContainsFunc(name, notName):
		return &ring.Refusal{
			Reason: fmt.Sprintf("the name %.70q is not 1 to 63 letters, digits, '.', '_' and '-'", name), Remedy: "choose another name",
		}
	}
	places := map[string]Place{name: {Manual: true, Keys: map[string]time.Time{}}}
	maps.Copy(places, p.Places)
	p.Places = places
	return nil
}

// Confirm records that a person has published a key at a place.
func (p *Published) Confirm(name, id string, now time.Time) error {
	place, ok := p.Places[name]
	if !ok || !place.Manual {
		return p.noPlace(name)
	}
	if !place.Keys[id].IsZero() {
		return &ring.Refusal{Reason: fmt.Sprintf("key %s is confirmed at %s", id, name), Remedy: "nothing to do", Done: true}
	}
	place.Keys[id] = now.UTC().Truncate(time.Second)
	return nil
}

// Forget removes a place. The leader adds one that it reads again, without what it has seen there.
func (p *Published) Forget(name string) error {
	if _, ok := p.Places[name]; !ok {
		return p.noPlace(name)
	}
	delete(p.Places, name)
	return nil
}

func (p *Published) noPlace(name string) error {
	return &ring.Refusal{
		Reason: fmt.Sprintf("there is no such place %q", name), Remedy: fmt.Sprintf("name one of %q", slices.Sorted(maps.Keys(p.Places))),
	}
}

// follow records since when nothing signs with a retired key, where that is known: on each host of a
// kube-apiserver a live replica signs for it. What was known of an earlier retirement goes.
func (p *Published) follow(state ring.State, hosts []string, now time.Time) {
	followed := map[string]time.Time{}
	live := p.Live(now)
	for _, key := range state.Retired() {
		if Signer(live, key.ID) != "" {
			continue
		}
		covered := !slices.ContainsFunc(hosts, func(host string) bool {
			return !slices.ContainsFunc(live, func(line Line) bool { return line.Host == host && line.Signer })
		})
		if since, known := p.Followed[key.ID]; known {
			followed[key.ID] = since
		} else if covered {
			followed[key.ID] = now.UTC().Truncate(time.Second)
		}
	}
	p.Followed = followed
}

// Signer returns the host of a line that signs with a key, "" if none does.
func Signer(lines []Line, id string) string {
	for _, line := range lines {
		if line.SignsWith == id {
			return "host " + line.Host
		}
	}
	return ""
}
