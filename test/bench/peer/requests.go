// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sa-controller-manager/test/bench/result"
	"sa-controller-manager/test/bench/world"
	"sa-controller-manager/test/devcluster"
)

// Requests makes the changes once more with kube-apiserver's audit log, which says who has
// asked for what. It is run with a tenth of the objects, because no time is measured.
func (o *Options) Requests(ctx context.Context) error {
	small := *o
	small.Namespaces, small.Secrets, small.Accounts = max(1, o.Namespaces/10), max(1, o.Secrets/10), max(1, o.Accounts/10)
	for _, p := range o.programs() {
		if err := small.requests(ctx, p); err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	return nil
}

func (o *Options) requests(ctx context.Context, p world.Program) (err error) {
	dir, err := os.MkdirTemp("", "sacm-audit-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	if err := os.WriteFile(policy, auditPolicy(), 0o600); err != nil {
		return err
	}
	options := devcluster.Options{APIServerFlags: map[string][]string{
		"audit-policy-file": {policy}, "audit-log-path": {log}, "audit-log-mode": {"blocking-strict"},
	}}
	return o.onFresh(ctx, options, func(w *world.World) error {
		r, err := w.Start(p, world.Unlimited...)
		if err != nil {
			return err
		}
		if err := r.AwaitReady(ctx); err != nil {
			return err
		}
		c := &crowd{Options: o, w: w, auto: p.Name == world.Auto}
		for _, s := range c.stages() {
			if err := o.countIn(ctx, c, s, r, log); err != nil {
				return err
			}
		}
		return nil
	})
}

func (o *Options) countIn(ctx context.Context, c *crowd, s stage, r *world.Running, log string) error {
	o.Progress.Statusf("requests, %s, %s", s.name, r.Name)
	if err := s.prepared(ctx); err != nil {
		return err
	}
	before, err := readAudit(log)
	if err != nil {
		return err
	}
	if _, err := o.watched(ctx, c, s, r, func(ctx context.Context) (time.Time, error) { return time.Now(), s.load(ctx) }); err != nil {
		return err
	}
	// What comes after the last write counts as well.
	if err := world.Sleep(ctx, between); err != nil {
		return err
	}
	after, err := readAudit(log)
	if err != nil {
		return err
	}
	var sum float64
	for _, what := range after.sorted() {
		n := float64(after[what]-before[what]) / float64(s.size)
		if n > 0 {
			o.add(result.Key{Scenario: "requests", Variant: s.each, Metric: what, Program: r.Name}, n)
			sum += n
		}
	}
	o.add(result.Key{Scenario: "requests", Variant: s.each, Metric: "all", Program: r.Name}, sum)
	return nil
}

// auditPolicy logs what the measured program has asked for, once it was answered.
func auditPolicy() []byte {
	return []byte(`apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
  - level: Metadata
    users: [` + world.User + `]
  - level: None
`)
}

// counts are requests by verb and resource. Watches are none: they go on.
type counts map[string]int

func (c counts) sorted() []string { return slices.Sorted(maps.Keys(c)) }

type auditEvent struct {
	Verb      string
	ObjectRef struct{ Resource, Subresource string }
}

func readAudit(path string) (counts, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // nothing was written
	return parseAudit(file)
}

// parseAudit leaves a last line alone that is not complete yet.
func parseAudit(log io.Reader) (counts, error) {
	c := counts{}
	reader := bufio.NewReader(log)
	for {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return c, nil
		}
		if err != nil {
			return nil, err
		}
		var event auditEvent
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
		if event.Verb == "watch" || event.ObjectRef.Resource == "" || event.ObjectRef.Resource == "leases" {
			continue
		}
		c[strings.TrimSuffix(event.Verb+" "+event.ObjectRef.Resource+"/"+event.ObjectRef.Subresource, "/")]++
	}
}
