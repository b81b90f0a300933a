// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package consistency

import (
	"context"
	"slices"
	"time"

	"k8s.io/client-go/kubernetes"

	"sa-controller-manager/internal/reconcile"
	"sa-controller-manager/signing/ring"
)

// watchInterval is how often a Watcher looks up the kube-apiservers.
const watchInterval = 30 * time.Second

// WatcherConfig is what a Watcher needs.
type WatcherConfig struct {
	Client kubernetes.Interface
	State  func() ring.State
	Loops  *reconcile.Metrics
}

// Watcher publishes, on the leader, which kube-apiservers there are, so that one that is down is not forgotten, and
// since when nothing signs with a retired key: what a prune waits for, so that it outlives every process.
type Watcher struct {
	WatcherConfig
	loop *reconcile.Runner[string]
}

// NewWatcher returns one that does not run yet.
func NewWatcher(config WatcherConfig) *Watcher {
	w := &Watcher{WatcherConfig: config}
	w.loop = reconcile.New(reconcile.Config[string]{Name: "retired_keys", Workers: 1, Sync: w.sync, Metrics: config.Loops})
	return w
}

// RingChanged must be called after the ring has changed. It does not block.
func (w *Watcher) RingChanged(context.Context) { w.loop.AddIfRunning(comparing) }

// Run works until ctx ends.
func (w *Watcher) Run(ctx context.Context) error {
	w.loop.Add(comparing)
	w.loop.Run(ctx)
	return nil
}

func (w *Watcher) sync(ctx context.Context, _ string) error {
	if _, err := Refresh(ctx, w.Client, true); err != nil {
		return err
	}
	err := Edit(ctx, w.Client, func(p *Published) error {
		p.follow(w.State(), time.Now())
		return nil
	})
	w.loop.AddAfter(comparing, watchInterval)
	return err
}

// Follow records since when nothing signs with a retired key. What was known of an earlier retirement goes. all says that
// every kube-apiserver was asked, so that one which signs is no unknown.
func (p *Published) Follow(state ring.State, signs func(id string) bool, all bool, now time.Time) {
	followed := map[string]time.Time{}
	for _, key := range state.Retired() {
		if signs(key.ID) {
			continue
		}
		if since, known := p.Followed[key.ID]; known {
			followed[key.ID] = since
		} else if all {
			followed[key.ID] = now.UTC().Truncate(time.Second)
		}
	}
	p.Followed = followed
}

// follow is Follow of what hosts say of themselves: on each host of a kube-apiserver a process has to sign for it.
func (p *Published) follow(state ring.State, now time.Time) {
	all := !slices.ContainsFunc(p.APIServers(), func(host string) bool {
		entry, known := p.Entry(host)
		return !known || !entry.Signer
	})
	p.Follow(state, func(id string) bool { return p.Signer(id) != "" }, all, now)
}

// Signer returns the host that signs with a key, "" if none does but those of without.
func (p Published) Signer(id string, without ...string) string {
	for _, entry := range p.Entries {
		if entry.SignsWith == id && !slices.Contains(without, entry.Host) {
			return "host " + entry.Host
		}
	}
	return ""
}
