// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"sa-controller-manager/internal/events"
	"sa-controller-manager/internal/reconcile"
)

// timeout of one pass, which may read all token Secrets.
const timeout = 5 * time.Minute

// Config is what a Controller needs.
type Config struct {
	Schedule Schedule
	// Operator returns the Operator of one pass. What it has found out about the cluster is not kept.
	Operator func() *Operator
	// Unready returns why this process must not rotate now, or "".
	Unready  func() string
	Recorder *events.Recorder
	// Process is the object that Events about this process regard.
	Process *corev1.ObjectReference
	Metrics *Metrics
	Loops   *reconcile.Metrics
}

// Controller rotates keys by a schedule, on the leader. RingChanged and Status may be called from any
// goroutine.
type Controller struct {
	Config
	loop   *reconcile.Runner[string]
	status atomic.Pointer[string]

	// Only the one worker of the loop uses the fields below.
	tried map[string]time.Time // when each key was last tried to be pruned
	held  string               // the Event that was recorded last
}

// rotating is the one key of the queue.
const rotating = "rotate"

// NewController returns one that does not run yet.
func NewController(config Config) *Controller {
	c := &Controller{Config: config, tried: map[string]time.Time{}}
	c.loop = reconcile.New(reconcile.Config[string]{Name: "key_rotation", Workers: 1, Sync: c.sync, Metrics: config.Loops})
	c.show("the leader rotates")
	return c
}

// RingChanged must be called after the ring has changed. It does not block.
func (c *Controller) RingChanged(context.Context) { c.loop.AddIfRunning(rotating) }

// Status says what the next step waits for. It does not block.
func (c *Controller) Status() string { return *c.status.Load() }

// Run rotates until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	c.loop.Add(rotating)
	c.loop.Run(ctx)
	c.Metrics.due.Reset() // the next leader has them
	c.Metrics.drift.Reset()
	c.show("the leader rotates")
	return nil
}

func (c *Controller) sync(ctx context.Context, _ string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	outcome, err := c.Operator().Auto(ctx, c.Schedule, c.Unready(), c.tried)
	if err != nil {
		c.show(err.Error())
		return err
	}
	c.Metrics.set(outcome)
	c.report(ctx, outcome)
	c.loop.AddAfter(rotating, outcome.Again)
	return nil
}

func (c *Controller) report(ctx context.Context, outcome Outcome) {
	logger := klog.FromContext(ctx)
	if outcome.Did != "" {
		logger.Info("Rotated by policy", "step", outcome.Did)
		c.Recorder.Normal(c.Process, "KeyRotationStep", "by policy: "+outcome.Did)
		outcome.Waits, c.held = outcome.Did, ""
	}
	if outcome.Waits != c.Status() {
		logger.V(2).Info("Rotation by policy waits", "reason", outcome.Waits, "held", outcome.Held)
		c.show(outcome.Waits)
	}
	if outcome.Held && outcome.Waits != c.held {
		c.held = outcome.Waits
		c.Recorder.Warn(c.Process, "KeyRotationHeld", "keys do not rotate by policy: "+outcome.Waits)
	}
}

func (c *Controller) show(status string) { c.status.Store(&status) }

// Metrics show when a rotation is due, and whether relying parties have the keys.
type Metrics struct{ due, drift *metrics.GaugeVec }

// NewMetrics registers the series with mustRegister, such as legacyregistry.MustRegister.
func NewMetrics(mustRegister func(...metrics.Registerable)) *Metrics {
	m := &Metrics{
		due: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Name: "sacm_key_next_rotation_timestamp_seconds",
			Help: "When --rotate-every wants the active key replaced, in seconds since 1970. Only the leader has it.",
		}, nil),
		drift: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Name: "sacm_published_issuer_drift",
			Help: "With --rotate-every, 1 while a --published-issuer lacks a key of the ring that may have signed, or cannot be read, else 0. " +
				"Only the leader has it.",
		}, []string{"issuer"}),
	}
	mustRegister(m.due, m.drift)
	return m
}

func (m *Metrics) set(outcome Outcome) {
	m.due.WithLabelValues().Set(float64(outcome.Due.Unix()))
	for _, seen := range outcome.Published {
		drift := 0.0
		if seen.Drift {
			drift = 1
		}
		m.drift.WithLabelValues(seen.Issuer).Set(drift)
	}
}
