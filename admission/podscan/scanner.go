// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package podscan

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"sa-controller-manager/admission/registration"
)

const (
	// settle is how long kube-apiservers may take to notice what has been registered.
	// Pods that they admit meanwhile are missed too.
	settle = 5 * time.Second

	// interval is the least time between two scans, however often the registration
	// changes: each reads all Pods of the cluster.
	interval = 30 * time.Second

	firstBackoff = time.Second
	maxBackoff   = time.Minute
	maxDoublings = 6

	// quietFailures is how many tries may fail before anybody is told.
	quietFailures = 3

	// eventLimit bounds the Events of one scan. The summary has the number.
	eventLimit = 100
)

// ScannerConfig says what a Scanner needs. Metrics may be nil.
type ScannerConfig struct {
	Finder

	// Process is the object that the summary regards.
	Process *corev1.ObjectReference
	Warn    func(regarding *corev1.ObjectReference, reason, action, note string)
	Metrics *Metrics
	Clock   clock.WithTicker // nil means the real one
}

// Scanner looks for missed Pods whenever the registration has become right, and reports
// them.
type Scanner struct {
	config ScannerConfig
	woken  chan struct{}

	mu         sync.Mutex
	registered bool
	due        bool // registered, and not scanned since

	// Only the goroutine of Run uses what follows.
	failed int    // scans in a row
	told   string // the last failure that was made known
}

// NewScanner returns a Scanner that does not run yet.
func NewScanner(config ScannerConfig) *Scanner {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	return &Scanner{config: config, woken: make(chan struct{}, 1)}
}

// Registration is to be told each state of the registration. It does not block.
func (s *Scanner) Registration(state registration.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.registered = state == registration.Registered
	s.due = s.registered
	select {
	case s.woken <- struct{}{}:
	default: // it will look anyway
	}
}

// Run scans whenever that is due, until ctx ends. It may be called again after that.
func (s *Scanner) Run(ctx context.Context) error {
	for s.awaitDue(ctx) && s.pause(ctx, settle) {
		if !s.begin() {
			continue // it has gone again meanwhile, and is due when it is back
		}
		next := interval
		if err := s.scan(ctx); err != nil && ctx.Err() == nil {
			next = s.fail(ctx, err)
		}
		if !s.pause(ctx, next) {
			break
		}
	}
	return nil
}

// awaitDue tells whether a scan came to be due before ctx ended.
func (s *Scanner) awaitDue(ctx context.Context) bool {
	for {
		s.mu.Lock()
		due := s.due
		s.mu.Unlock()
		if due {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-s.woken:
		}
	}
}

// begin tells whether the scan is still due. A change from then on makes another one due.
func (s *Scanner) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	due := s.due
	s.due = false
	return due
}

// again is for a scan that has failed.
func (s *Scanner) again() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.due = s.registered
}

// pause tells whether it ended before ctx did.
func (s *Scanner) pause(ctx context.Context, d time.Duration) bool {
	timer := s.config.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}

func (s *Scanner) scan(ctx context.Context) error {
	begun := s.config.Clock.Now()
	found, err := s.config.Find(ctx, "")
	if err != nil {
		return err
	}
	s.failed, s.told = 0, ""
	now := s.config.Clock.Now()
	s.config.Metrics.scanned(len(found.Missed), now)
	klog.FromContext(ctx).Info("Looked for Pods that were admitted without the webhook",
		"missed", len(found.Missed), "uncertain", len(found.Uncertain), "pods", found.Looked, "took", now.Sub(begun))
	s.report(found)
	return nil
}

// report tells of each Pod, and of all together.
func (s *Scanner) report(found Found) {
	if len(found.Missed) == 0 {
		return
	}
	// The newest come first: what an earlier scan has found has had its Event.
	newest := slices.SortedStableFunc(slices.Values(found.Missed), func(a, b Pod) int { return b.Created.Compare(a.Created.Time) })
	for i := range newest[:min(len(newest), eventLimit)] {
		pod := &newest[i]
		s.config.Warn(pod.reference(), "AdmittedWithoutWebhook", "Scan", fmt.Sprintf(
			"the webhook was not called for this Pod, which lacks: %s; only a new Pod will have it", pod.Lacks()))
	}
	note := fmt.Sprintf("Pods that were admitted without the webhook and lack their account or token: %d, the first is %s; "+
		"sa-controller-manager webhook missed --kubeconfig=/etc/kubernetes/admin.conf lists them, and what to type to have them created again", len(found.Missed), &found.Missed[0])
	if n := len(found.Missed); n > eventLimit {
		note += fmt.Sprintf("; the newest %d have Events of their own", eventLimit)
	}
	if n := len(found.Uncertain); n > 0 {
		note += fmt.Sprintf("; uncertain are %d more", n)
	}
	s.config.Warn(s.config.Process, "PodsMissed", "Scan", note)
}

// fail makes the scan due again and tells when. What keeps failing is made known, once.
func (s *Scanner) fail(ctx context.Context, err error) time.Duration {
	s.again()
	s.failed++
	if s.failed >= quietFailures && err.Error() != s.told {
		s.told = err.Error()
		klog.FromContext(ctx).Error(err, "Pods that were admitted without the webhook cannot be looked for, trying again")
		s.config.Warn(s.config.Process, "MissedPodsUnknown", "Scan",
			"Pods that were admitted without the webhook cannot be looked for: "+err.Error())
	}
	return min(firstBackoff<<min(s.failed-1, maxDoublings), maxBackoff)
}
