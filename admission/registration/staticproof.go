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
	// provenFor is how long a proof holds. Then it is repeated.
	provenFor = 10 * time.Second

	// loadedFor is how long it is not asked again which files are loaded: the metrics of kube-apiserver
	// are megabytes in a large cluster.
	loadedFor = 5 * time.Minute

	// maxPause limits the back-off of questions that are answered with no.
	maxPause = time.Minute

	// loadDelay is how long kube-apiserver may take to load what this process has written, or the answer
	// to a question be no, before that is a failure. kube-apiserver is notified and mostly needs
	// milliseconds.
	loadDelay = 10 * time.Second

	askTimeout = 10 * time.Second
)

// question is whether kube-apiserver of this host calls this process by the present files: it has loaded
// them, and a Pod with dryRun has our answer. A write and an outage of kube-apiserver begin another one.
type question struct {
	number int
	loaded time.Time     // when kube-apiserver last had the files
	due    time.Time     // when to ask
	pause  time.Duration // before that, after a no
	no     error         // why the last answer was no
	since  time.Time     // when the first no came
	failed State         // what it keeps from being Registered
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
	now := s.config.Clock.Now()
	away := s.config.Answers(ctx)
	switch {
	case away != nil:
		q = question{number: q.number}
	case !now.Before(q.due):
		q = s.answer(ctx, q, now)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if ending.Err() != nil || s.question.number != q.number {
		return nil // the end, or a write has queued
	}
	s.question = q
	s.asks.AddAfter(s.config.Dir, s.conclude(ctx, away, now))
	return nil
}

// answer asks, and decides when to ask again.
func (s *StaticFiles) answer(ctx context.Context, q question, now time.Time) question {
	q.no, q.failed = nil, Waiting
	if now.Sub(q.loaded) >= loadedFor {
		q.no, q.loaded = s.missing(ctx), now
	}
	if q.no == nil {
		q.failed = Proving
		q.no = prove(ctx, s.config.Client, s.config.Endpoint(mutatePath), s.config.Responder)
	}
	if q.no == nil {
		return question{number: q.number, loaded: q.loaded, due: now.Add(provenFor)}
	}
	if q.since.IsZero() {
		q.since = now
	}
	q.loaded, q.pause = time.Time{}, min(max(2*q.pause, requeueAfter), maxPause)
	q.due = now.Add(q.pause)
	return q
}

// conclude shows what the answer means, and returns when to check again.
func (s *StaticFiles) conclude(ctx context.Context, away error, now time.Time) time.Duration {
	q, state := s.question, s.Status().State
	late := now.Sub(q.since) >= loadDelay
	switch {
	case away != nil:
		// Without kube-apiserver nobody creates Pods, and what was registered still is.
		if state != Registered {
			s.show(ctx, Status{State: state, Detail: "kube-apiserver does not answer: " + away.Error()})
		}
	case q.no == nil && s.bound:
		s.proven = newProof(s.caBundle)
		s.config.ServingCA.Registered([][]byte{s.caBundle}, false)
		s.config.Metrics.loaded(true)
		s.show(ctx, Status{State: Registered, Detail: s.config.Endpoint("") + " in " + s.config.Dir})
		return provenFor
	case q.no == nil:
		s.proven = newProof(s.caBundle)
		klog.FromContext(ctx).Info("Proved that kube-apiserver reaches the webhook", "url", s.config.Endpoint(mutatePath))
		s.queue()
	case state == Registered && !late:
	default:
		if late {
			s.config.Metrics.loaded(false)
		}
		if state == Registered || state == Repairing {
			q.failed = Repairing
		}
		s.show(ctx, Status{State: q.failed, Detail: q.no.Error()})
	}
	return requeueAfter
}

// missing returns why the present files are not in force, nil if kube-apiserver has loaded them.
func (s *StaticFiles) missing(ctx context.Context) error {
	loaded, err := s.config.Loaded(ctx)
	if err != nil {
		return fmt.Errorf("ask kube-apiserver which webhook configurations it has loaded: %w", err)
	}
	for k := range kinds {
		dir := k.staticDir(s.config.Dir)
		_, want, err := manifest.LoadFiles(dir)
		if err != nil {
			return err
		}
		found, reads := loaded[k.plugin()]
		switch {
		case !reads:
			return fmt.Errorf("kube-apiserver reads no static manifests: its plugin %s needs staticManifestsDir: %s", k.plugin(), dir)
		case found == "":
			return fmt.Errorf("kube-apiserver has loaded no file from %s", dir)
		case found != want:
			return fmt.Errorf("kube-apiserver has not loaded the present files of %s: its log says why", dir)
		}
	}
	return nil
}
