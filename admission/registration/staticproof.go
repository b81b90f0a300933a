// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apiserver/pkg/admission/plugin/manifest"
	"k8s.io/klog/v2"

	"sa-controller-manager/manifests"
)

const (
	// askEach is how long the answer to a proof holds.
	askEach = 10 * time.Second

	// loadedEach is how many proofs pass until it is asked again which files are loaded: the metrics of kube-apiserver
	// are megabytes in a large cluster.
	loadedEach = 30

	// tolerated is how many failures, one after the other, do not end what is registered: kube-apiserver is
	// notified of what this process writes and mostly needs milliseconds. They take seven seconds.
	tolerated = 4

	// maxPause limits the back-off after failures.
	maxPause = 20 * time.Second

	askTimeout = 10 * time.Second
)

// proof tracks whether the local kube-apiserver calls this process through the current files: it has loaded them, and
// a Pod with dryRun has our answer. A write starts a new proof.
type proof struct {
	number   int
	answers  int // that proved it
	failures int // one after the other
}

func (q proof) next() proof { return proof{number: q.number + 1} }

// ask asks kube-apiserver, and requeues.
func (s *StaticFiles) ask(ctx context.Context) error {
	s.mu.Lock()
	q, asked := s.proof, s.contents[mutating] != nil
	s.mu.Unlock()
	if !asked {
		return nil // the first write queues
	}
	var failed *failure
	if q.failures > 0 || q.answers%loadedEach == 0 {
		failed = s.missing(ctx)
	}
	if failed == nil {
		failed = s.config.prove(ctx, s.config.Client, s.config.Responder, false)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil || s.proof.number != q.number {
		return nil // the end, or a write has queued
	}
	if failed == nil {
		s.proof.answers, s.proof.failures = q.answers+1, 0
		s.proved(ctx)
		s.asks.AddAfter(s.config.Dir, askEach)
		return nil
	}
	s.proof.failures++
	s.failed(ctx, failed)
	s.asks.AddAfter(s.config.Dir, min(requeueAfter<<min(q.failures, 10), maxPause))
	return nil
}

// proved shows that the files are in force, or has the real rules written.
func (s *StaticFiles) proved(ctx context.Context) {
	s.proven = s.caBundle
	if !s.bound {
		klog.FromContext(ctx).Info("Proved that kube-apiserver reaches the webhook", "url", s.config.Endpoint(mutatePath))
		s.queue()
		return
	}
	s.config.ServingCA.Registered([][]byte{s.caBundle}, false)
	s.config.Metrics.loaded(true)
	s.show(ctx, Status{State: Registered, Detail: s.config.Endpoint("") + " in " + s.config.Dir})
}

// failed shows a failure, unless it is among the first ones of what was right. What was registered without an
// answer still is: nothing says that it is not.
func (s *StaticFiles) failed(ctx context.Context, failed *failure) {
	if s.proof.failures <= tolerated && (s.Status().State == Registered || s.proven != nil) {
		return
	}
	if !failed.unasked {
		s.proven = nil
		s.config.Metrics.loaded(false)
	}
	s.show(ctx, Status{State: failed.state(s.binds), Detail: failed.Error()})
}

// missing returns why the present files are not in force, nil if kube-apiserver has loaded them.
func (s *StaticFiles) missing(ctx context.Context) *failure {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	loaded, err := s.config.Loaded(ctx)
	if err != nil {
		err = fmt.Errorf("ask kube-apiserver which webhook configurations it has loaded: %w", err)
		return &failure{error: err, stage: Waiting, unasked: true}
	}
	for k := range kinds {
		dir := manifests.StaticDirs(s.config.Dir)[k]
		_, want, err := manifest.LoadFiles(dir)
		found, reads := loaded[k.plugin()]
		switch {
		case err != nil:
		case !reads:
			err = fmt.Errorf("kube-apiserver reads no static manifests: its plugin %s needs staticManifestsDir: %s", k.plugin(), dir)
		case found != want:
			err = fmt.Errorf("kube-apiserver has not loaded the present files of %s: its log says why", dir)
		}
		if err != nil {
			return &failure{error: err, stage: Waiting}
		}
	}
	return nil
}
