// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package podscan

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/internal/events"
	"sa-controller-manager/internal/reconcile"
)

const (
	// settleDelay is how long kube-apiservers may take to use a new registration. Pods that they
	// admit meanwhile are missed too.
	settleDelay = 5 * time.Second

	// interval is the minimum time between two scans, however often the registration changes: each
	// reads all Pods of the cluster.
	interval = 30 * time.Second

	// quietFailures is how many consecutive failures get no Event. They take some five seconds.
	quietFailures = 8

	// eventLimit limits the Events of one scan. The summary has the total.
	eventLimit = 100

	// everything is the only key of the queue.
	everything = "all"
)

// ScannerConfig configures a Scanner. Metrics and Loops may be nil.
type ScannerConfig struct {
	Finder

	// Process is the object of the summary Event.
	Process  *corev1.ObjectReference
	Recorder *events.Recorder
	Metrics  *Metrics
	Loops    *reconcile.Metrics
}

// Scanner scans for missed Pods whenever the registration has become correct, and reports them.
type Scanner struct {
	config     ScannerConfig
	queue      *reconcile.Runner[string]
	registered atomic.Bool

	// Only sync uses what follows.
	notBefore time.Time // the next scan
	failures  int       // consecutive
}

// NewScanner returns a Scanner that does not run yet.
func NewScanner(config ScannerConfig) *Scanner {
	s := &Scanner{config: config}
	s.queue = reconcile.New(reconcile.Config[string]{Name: "pod_scan", Workers: 1, Sync: s.sync, Metrics: config.Loops})
	return s
}

// Registration must be called with each state of the registration. It does not block.
func (s *Scanner) Registration(state registration.State) {
	registered := state == registration.Registered
	s.registered.Store(registered)
	if registered {
		s.queue.AddAfter(everything, settleDelay)
	}
}

// Run scans when due, until ctx ends. It may be called again after that.
func (s *Scanner) Run(ctx context.Context) error {
	s.queue.Run(ctx)
	return nil
}

func (s *Scanner) sync(ctx context.Context, key string) error {
	if !s.registered.Load() {
		return nil // Registration queues the key again
	}
	if left := time.Until(s.notBefore); left > 0 {
		s.queue.AddAfter(key, left)
		return nil
	}
	if err := s.scan(ctx); err != nil {
		s.fail(err)
		return fmt.Errorf("scan for Pods that were admitted without the webhook: %w", err)
	}
	s.failures, s.notBefore = 0, time.Now().Add(interval)
	return nil
}

func (s *Scanner) scan(ctx context.Context) error {
	begun := time.Now()
	found, err := s.config.Find(ctx, "")
	if err != nil {
		return err
	}
	now := time.Now()
	s.config.Metrics.scanned(len(found.Missed), now)
	klog.FromContext(ctx).Info("Scanned for Pods that were admitted without the webhook",
		"missed", len(found.Missed), "uncertain", len(found.Uncertain), "pods", found.Looked, "took", now.Sub(begun))
	s.report(found)
	return nil
}

// fail records an Event for a repeated failure.
func (s *Scanner) fail(err error) {
	if s.failures++; s.failures > quietFailures {
		s.config.Recorder.Warn(s.config.Process, "PodScanFailed",
			"Failed to scan for Pods that were admitted without the webhook: "+err.Error())
	}
}

// report records an Event for each Pod, and one for all together.
func (s *Scanner) report(found Found) {
	if len(found.Missed) == 0 {
		return
	}
	// The newest come first: those that an earlier scan has found have had their Event.
	newest := slices.SortedStableFunc(slices.Values(found.Missed), func(a, b Pod) int { return b.Created.Compare(a.Created.Time) })
	for i := range newest[:min(len(newest), eventLimit)] {
		pod := &newest[i]
		s.config.Recorder.Warn(pod.reference(), "AdmittedWithoutWebhook", fmt.Sprintf(
			"The webhook was not called for this Pod, which lacks: %s. Only a new Pod will have it", pod.Lacks()))
	}
	note := fmt.Sprintf("Pods that were admitted without the webhook and lack their account or token: %d, the first is %s; "+
		"sa-controller-manager webhook missed --kubeconfig=/etc/kubernetes/admin.conf lists them "+
		"with the commands that create them again", len(found.Missed), &found.Missed[0])
	if n := len(found.Missed); n > eventLimit {
		note += fmt.Sprintf("; the newest %d have Events of their own", eventLimit)
	}
	if n := len(found.Uncertain); n > 0 {
		note += fmt.Sprintf("; %d more are uncertain", n)
	}
	s.config.Recorder.Warn(s.config.Process, "PodsAdmittedWithoutWebhook", note)
}
