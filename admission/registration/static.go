// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/admission/plugin/manifest"
	"k8s.io/apiserver/pkg/util/filesystem"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"sa-controller-manager/internal/atomicfile"
	"sa-controller-manager/internal/reconcile"
)

const (
	// staticPoll is how often the files are compared even if no notification came.
	staticPoll = 10 * time.Second

	// loadDelay is how long kube-apiserver may take to load what this process has written before
	// that is a failure. It is notified and mostly needs milliseconds.
	loadDelay = 10 * time.Second
)

// ReadsNothing begins the detail of Status while kube-apiserver is not configured for the files. kubeadm
// takeover depends on it.
const ReadsNothing = "kube-apiserver reads no directory"

// StaticFilesConfig configures StaticFiles. Metrics, Changed and Loops may be nil.
type StaticFilesConfig struct {
	Spec

	// Dir is the directory that has those of StaticDirs.
	Dir       string
	ServingCA ServingCA
	// Loaded returns the hash of the files that kube-apiserver of this host has loaded, by plugin.
	Loaded func(context.Context) (map[string]string, error)
	// Changed is called with each new state. It must not block.
	Changed func(State)
	Metrics *Metrics
	Loops   *reconcile.Metrics
	Clock   clock.WithTicker // nil means the real one
}

// StaticFiles keeps both configurations as files for the kube-apiserver of this host. It passes a
// caBundle on to the ServingCA once that kube-apiserver has loaded it. Every replica runs one.
type StaticFiles struct {
	config StaticFilesConfig
	loop   *reconcile.Runner[string]
	status atomic.Pointer[Status]

	// Only sync uses what follows.
	contents [kinds][]byte // last written or found right
	wrote    time.Time     // the last write of our own accord
	asked    time.Time     // when kube-apiserver last had what it should
	lost     bool          // another process has changed a file, or kube-apiserver has another one
}

// NewStaticFiles returns StaticFiles that do not run yet. The spec must be valid.
func NewStaticFiles(config StaticFilesConfig) *StaticFiles {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	s := &StaticFiles{config: config}
	s.loop = reconcile.New(reconcile.Config[string]{
		Name: "webhook_static_files", Workers: 1, Sync: s.sync, Metrics: config.Loops, MaxBackoff: staticPoll, Clock: config.Clock,
	})
	s.show(context.Background(), Status{State: Starting})
	config.ServingCA.OnChange(s.queue)
	return s
}

func (s *StaticFiles) queue() { s.loop.AddIfRunning(s.config.Dir) }

// Status returns the state of the files and of what kube-apiserver has loaded.
func (s *StaticFiles) Status() Status { return *s.status.Load() }

// Check returns nil if kube-apiserver has loaded the files as they should be.
func (s *StaticFiles) Check() error { return s.Status().Check() }

// Run keeps the files until ctx ends, and leaves them. It must be called once.
func (s *StaticFiles) Run(ctx context.Context) error {
	var watching sync.WaitGroup
	defer watching.Wait()
	for k := range kinds {
		// What is left of a killed process does no harm, but nobody else removes it.
		if err := atomicfile.RemoveLeftovers(k.staticPath(s.config.Dir)); err != nil {
			klog.FromContext(ctx).Error(err, "Failed to remove temporary files")
		}
		// It cannot be watched before the first write has made it; until then this polls.
		watching.Go(func() {
			filesystem.WatchUntil(ctx, staticPoll, k.staticDir(s.config.Dir), s.queue, nil)
		})
	}
	s.loop.Add(s.config.Dir)
	s.loop.Run(ctx)
	return nil
}

func (s *StaticFiles) sync(ctx context.Context, key string) error {
	status, err := s.step(ctx)
	if err != nil {
		s.show(ctx, Status{Repairing, err.Error()})
		return err
	}
	s.show(ctx, status)
	if status.State != Registered || s.asked.IsZero() {
		s.loop.AddAfter(key, requeueAfter)
	}
	return nil
}

// step writes the files that differ, and asks kube-apiserver if that is due.
func (s *StaticFiles) step(ctx context.Context) (Status, error) {
	caBundle, now := s.config.ServingCA.CABundle(), s.config.Clock.Now()
	if len(caBundle) == 0 {
		return Status{Waiting, "there is no caBundle to register yet"}, nil
	}
	if err := s.write(ctx, caBundle, now); err != nil {
		return Status{}, err
	}
	// Beside after each write kube-apiserver is asked seldom: its metrics are megabytes in a large cluster.
	if !s.asked.IsZero() && now.Sub(s.asked) < 5*time.Minute {
		return s.Status(), nil
	}
	s.asked = time.Time{}
	missing, err := s.missing(ctx)
	switch {
	case err != nil:
		return Status{}, err
	case missing == nil:
		s.asked, s.lost = now, false
		s.config.ServingCA.Registered([][]byte{caBundle}, false)
		return Status{Registered, s.config.Endpoint("") + " in " + s.config.Dir}, nil
	case !s.lost && now.Sub(s.wrote) < loadDelay:
		if s.Status().State == Registered {
			return s.Status(), nil
		}
		return Status{Waiting, missing.Error()}, nil
	default:
		s.lost = true
		return Status{Repairing, missing.Error()}, nil
	}
}

// write writes the files that differ from what they should be. One that was right before has been
// changed by another process, which kube-apiserver may have seen.
func (s *StaticFiles) write(ctx context.Context, caBundle []byte, now time.Time) error {
	wanted, err := s.config.staticContents(caBundle)
	if err != nil {
		return err
	}
	for k, content := range wanted {
		path := kind(k).staticPath(s.config.Dir)
		found, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("read the static registration: %w", err)
		}
		if err == nil && bytes.Equal(found, content) {
			s.contents[k] = content
			continue
		}
		s.asked = time.Time{}
		if bytes.Equal(s.contents[k], content) {
			s.lost = true
			s.config.Metrics.repaired()
			s.show(ctx, Status{Repairing, path + " was changed or removed by another process"})
		} else {
			s.wrote = now
		}
		if err := kind(k).writeStatic(s.config.Dir, content); err != nil {
			return err
		}
		s.contents[k] = content
		klog.FromContext(ctx).Info("Wrote the webhook configuration", "file", path, "bytesBefore", len(found))
	}
	return nil
}

// missing returns an error that says what kube-apiserver has not loaded, nil if it has all.
func (s *StaticFiles) missing(ctx context.Context) (missing, err error) {
	loaded, err := s.config.Loaded(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask kube-apiserver which webhook configurations it has loaded: %w", err)
	}
	for k := range kinds {
		_, want, err := manifest.LoadFiles(k.staticDir(s.config.Dir))
		if err != nil {
			return nil, err
		}
		found, reads := loaded[k.plugin()]
		switch {
		case !reads:
			missing = fmt.Errorf(ReadsNothing+": its plugin %s needs staticManifestsDir: %s", k.plugin(), k.staticDir(s.config.Dir))
		case found == "":
			missing = fmt.Errorf("kube-apiserver has loaded no file from %s", k.staticDir(s.config.Dir))
		case found != want:
			missing = fmt.Errorf("kube-apiserver has not loaded the present files of %s: its log says why", k.staticDir(s.config.Dir))
		}
		s.config.Metrics.loaded(k, found == want || !s.lost && s.config.Clock.Since(s.wrote) < loadDelay)
	}
	return missing, nil
}

func (s *StaticFiles) show(ctx context.Context, status Status) {
	last := s.status.Swap(&status)
	if last != nil && last.State == status.State {
		return
	}
	s.config.Metrics.state(status.State)
	if last == nil {
		return
	}
	klog.FromContext(ctx).Info("Changed the state of the webhook registration", "state", status.State, "detail", status.Detail)
	if s.config.Changed != nil {
		s.config.Changed(status.State)
	}
}
