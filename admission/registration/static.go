// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"bytes"
	"cmp"
	"context"
	"os"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apiserver/pkg/util/filesystem"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"sa-controller-manager/internal/reconcile"
	"sa-controller-manager/manifests"
)

// staticPoll is how often the files are compared even if no notification came.
const staticPoll = 10 * time.Second

// StaticFilesConfig configures StaticFiles.
type StaticFilesConfig struct {
	// Config has a client of the kube-apiserver of this host, and the responder of this process.
	Config

	// Dir is the directory that has those of manifests.StaticDirs.
	Dir string
	// Loaded returns the hash of the files that its kube-apiserver has loaded, by plugin.
	Loaded func(context.Context) (map[string]string, error)
}

// StaticFiles keeps both configurations as files for the kube-apiserver of this host. Every replica runs
// one. A loop keeps the files, and never waits for kube-apiserver. Another one asks kube-apiserver: see
// proof.
type StaticFiles struct {
	board

	config     StaticFilesConfig
	keep, asks *reconcile.Runner[string]
	writes     *rate.Limiter

	mu       sync.Mutex    // of what follows
	contents [kinds][]byte // last written or found right; nil before
	bound    bool          // they are the real rules
	binds    bool          // they have rules, if only those of a previous process
	caBundle []byte        // that they have
	proven   []byte        // the caBundle; nil before, and from a switch-off, a removal or a lost proof on
	proof    proof         // about contents
}

// NewStaticFiles returns StaticFiles that do not run yet. The spec must be valid.
func NewStaticFiles(config StaticFilesConfig) *StaticFiles {
	config.Clock = cmp.Or[clock.WithTicker](config.Clock, clock.RealClock{})
	config.Metrics = cmp.Or(config.Metrics, NewMetrics(nil))
	s := &StaticFiles{
		board: board{metrics: config.Metrics}, config: config,
		writes: rate.NewLimiter(rate.Every(writeInterval), writeBurst),
	}
	loop := func(name string, sync func(context.Context) error) *reconcile.Runner[string] {
		return reconcile.New(reconcile.Config[string]{
			Name: name, Workers: 1, Sync: func(ctx context.Context, _ string) error { return sync(ctx) },
			Metrics: config.Loops, MaxBackoff: staticPoll, Clock: config.Clock,
		})
	}
	s.keep, s.asks = loop("webhook_static_files", s.keepFiles), loop("webhook_static_proof", s.ask)
	s.show(context.Background(), Status{State: Starting})
	config.ServingCA.Subscribe(func([]byte) { s.queue() })
	return s
}

func (s *StaticFiles) queue() { s.keep.AddIfRunning(s.config.Dir) }

// Run keeps the files until ctx ends, and leaves them. It must be called once.
func (s *StaticFiles) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	for k := range kinds {
		// It cannot be watched before the first write has made it; until then this polls.
		running.Go(func() {
			filesystem.WatchUntil(ctx, staticPoll, manifests.StaticDirs(s.config.Dir)[k], s.queue, nil)
		})
	}
	s.asks.Open() // for what the other loop adds
	running.Go(func() { s.asks.Run(ctx) })
	s.keep.Add(s.config.Dir)
	s.keep.Run(ctx)
	return nil
}

// keepFiles writes the files that differ from what they should be.
func (s *StaticFiles) keepFiles(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := os.Stat(StaticOffPath(s.config.Dir))
	switch {
	case err == nil:
		err = s.leave(ctx)
	case os.IsNotExist(err):
		err = s.write(ctx)
	}
	if err != nil {
		s.show(ctx, Status{State: Repairing, Detail: err.Error()})
	}
	return err
}

// leave removes the files after UnregisterStatic: this process may have written them again meanwhile.
func (s *StaticFiles) leave(ctx context.Context) error {
	s.contents, s.bound, s.proven, s.proof = [kinds][]byte{}, false, nil, s.proof.next()
	s.config.ServingCA.Registered(nil, false)
	s.config.Metrics.loaded(false)
	s.show(ctx, Status{State: Off, Detail: StaticOffPath(s.config.Dir) + " is there; to switch it on, on this host: " +
		"sa-controller-manager webhook register --static-registration-dir=" + s.config.Dir})
	return RemoveStatic(s.config.Dir)
}

// write decides on the contents: the real rules once the path to this process is proved, or if they are
// there already, and before that those which are there and the entry of the probe.
func (s *StaticFiles) write(ctx context.Context) error {
	caBundle := s.config.ServingCA.CABundle()
	if len(caBundle) == 0 {
		s.show(ctx, Status{State: Waiting, Detail: "there is no caBundle to register yet"})
		return nil
	}
	wanted, err := s.config.staticContents(caBundle)
	if err != nil {
		return err
	}
	found, err := readStatic(s.config.Dir)
	if err != nil {
		return err
	}
	right := bytes.Equal(found[mutating], wanted[mutating]) && bytes.Equal(found[validating], wanted[validating])
	if !right && (len(found[mutating]) == 0 || s.proof.failures > 0) {
		s.proven = nil // it may have been a switch-off and on again that this process has not seen
	}
	bound := right || bytes.Equal(s.proven, caBundle)
	binds := bound
	if !bound {
		if wanted, binds, err = s.config.stagedContents(ctx, found, caBundle); err != nil {
			return err
		}
	}
	changed := false
	for k, content := range wanted {
		if bytes.Equal(found[k], content) {
			changed = changed || !bytes.Equal(s.contents[k], content)
			continue
		}
		changed = true
		path := kind(k).staticPath(s.config.Dir)
		if s.contents[k] != nil && !bytes.Equal(s.contents[k], found[k]) {
			s.config.Metrics.repairs.Inc()
			s.show(ctx, Status{State: Repairing, Detail: path + " was changed or removed by another process, perhaps a second one of ours"})
		}
		if !s.writes.AllowN(s.config.Clock.Now(), 1) {
			s.keep.AddAfter(s.config.Dir, writeInterval)
			return nil
		}
		if err := writeStatic(path, content); err != nil {
			return err
		}
		klog.FromContext(ctx).Info("Wrote the webhook configuration", "file", path, "bytesBefore", len(found[k]), "bound", bound)
	}
	if err := s.config.keepPolicy(s.config.Dir, bound); err != nil {
		return err
	}
	s.contents, s.bound, s.binds, s.caBundle = wanted, bound, binds, caBundle
	if changed {
		s.proof = s.proof.next()
		s.asks.AddIfRunning(s.config.Dir)
	}
	return nil
}

// readStatic returns the files below dir, nil for one that does not exist.
func readStatic(dir string) (found [kinds][]byte, err error) {
	for k := range kinds {
		if found[k], err = os.ReadFile(k.staticPath(dir)); err != nil && !os.IsNotExist(err) {
			return found, err // it names the path
		}
	}
	return found, nil
}
