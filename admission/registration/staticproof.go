// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apiserver/pkg/admission/plugin/manifest"
	"k8s.io/klog/v2"
)

const (
	// askEach is how long the answer to a question holds, and the least time between two.
	askEach = 10 * time.Second

	// loadedEach is how many proofs pass until it is asked again which files are loaded: the metrics of kube-apiserver
	// are megabytes in a large cluster.
	loadedEach = 30

	// tolerated is how many failures, one after the other, do not end what is registered: kube-apiserver is
	// notified of what this process writes and mostly needs milliseconds. They take seven seconds.
	tolerated = 4

	// maxPause limits the back-off of questions that are answered with no.
	maxPause = time.Minute

	askTimeout = 10 * time.Second
)

// question is whether kube-apiserver of this host calls this process by the present files: it has loaded
// them, and a Pod with dryRun has our answer. A write and an outage of kube-apiserver begin another one.
type question struct {
	number   int
	due      time.Time // when to ask
	answers  int       // that were yes
	failures int       // one after the other
	last     *failure  // nil after a yes
}

func (q question) next() question { return question{number: q.number + 1} }

// ask asks if that is due, and requeues.
func (s *StaticFiles) ask(ending context.Context) error {
	s.mu.Lock()
	q, asked := s.question, s.contents[mutating] != nil
	s.mu.Unlock()
	if !asked {
		return nil // the first write queues
	}
	ctx, cancel := context.WithTimeout(ending, askTimeout)
	defer cancel()
	away := s.config.Answers(ctx)
	if now := s.config.Clock.Now(); away != nil {
		q = question{number: q.number}
	} else if !now.Before(q.due) {
		q = s.answer(ending, q, now)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if ending.Err() != nil || s.question.number != q.number {
		return nil // the end, or a write has queued
	}
	s.question = q
	s.asks.AddAfter(s.config.Dir, s.conclude(ctx, away))
	return nil
}

// answer asks, and decides when to ask again.
func (s *StaticFiles) answer(ctx context.Context, q question, now time.Time) question {
	q.last = nil
	if q.failures > 0 || q.answers%loadedEach == 0 {
		q.last = s.missing(ctx)
	}
	if q.last == nil {
		q.last = s.config.prove(ctx, s.config.Client, s.config.Responder)
	}
	if q.last == nil {
		q.answers, q.failures, q.due = q.answers+1, 0, now.Add(askEach)
		return q
	}
	q.due = now.Add(min(requeueAfter<<min(q.failures, 10), maxPause))
	q.failures++
	return q
}

// conclude shows what the answer means, and returns when to check again.
func (s *StaticFiles) conclude(ctx context.Context, away error) time.Duration {
	q, state := s.question, s.Status().State
	switch {
	case away != nil:
		// Without kube-apiserver nobody creates Pods, and what was registered still is.
		if state != Registered {
			s.show(ctx, Status{State: state, Detail: "kube-apiserver does not answer: " + away.Error()})
		}
	case q.last == nil && s.bound:
		s.proven = newProof(s.caBundle)
		s.config.ServingCA.Registered([][]byte{s.caBundle}, false)
		s.config.Metrics.loaded(true)
		s.show(ctx, Status{State: Registered, Detail: s.config.Endpoint("") + " in " + s.config.Dir})
		return askEach
	case q.last == nil:
		s.proven = newProof(s.caBundle)
		klog.FromContext(ctx).Info("Proved that kube-apiserver reaches the webhook", "url", s.config.Endpoint(mutatePath))
		s.queue()
	case q.failures <= tolerated && (state == Registered || s.proven != nil):
	default:
		if !q.last.unasked {
			s.proven = nil
			s.config.Metrics.loaded(false)
		}
		s.show(ctx, Status{State: q.last.state(s.binds), Detail: q.last.Error()})
	}
	return requeueAfter
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
		dir := k.staticDir(s.config.Dir)
		_, want, err := manifest.LoadFiles(dir)
		found, reads := loaded[k.plugin()]
		switch {
		case err != nil:
		case !reads:
			err = fmt.Errorf("kube-apiserver reads no static manifests: its plugin %s needs staticManifestsDir: %s", k.plugin(), dir)
		case found == "":
			err = fmt.Errorf("kube-apiserver has loaded no file from %s", dir)
		case found != want:
			err = fmt.Errorf("kube-apiserver has not loaded the present files of %s: its log says why", dir)
		}
		if err != nil {
			return &failure{error: err, stage: Waiting}
		}
	}
	return nil
}
