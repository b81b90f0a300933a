// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"sa-controller-manager/internal/apiservers"
	"sa-controller-manager/internal/meta"
)

const (
	// heartbeatTimeout is how long a line may stay unchanged: a few heartbeats may be lost.
	heartbeatTimeout = 3 * heartbeatInterval

	// shownAfter is how long a host is missing before the status shows it. A new leader does not
	// know the age of any line, and receives each replica's heartbeat within a heartbeatInterval.
	shownAfter = 2 * heartbeatInterval

	// missingGrace is how long a host may be missing before an Event names it. The static pods of a
	// node that joins do not start at the same time.
	missingGrace = time.Minute
)

// AwaitsHosts begins the detail of Status while hosts are missing. kubeadm takeover depends on it.
const AwaitsHosts = "every kube-apiserver needs a replica on its own host before the webhook binds"

// hostCheck is the state of the hosts whose kube-apiserver calls the replica beside it. The zero
// value applies if every kube-apiserver reaches the webhook the same way.
type hostCheck struct {
	applies bool
	unknown error    // why the fields below are unknown
	missing []string // hosts without a heartbeat; empty for a single host
	shown   []string // hosts missing for longer than shownAfter
	stale   []string // lines that no replica renews
}

// hold decides whether the first binding has to wait, and for what: no kube-apiserver may be made
// to call a webhook that it does not reach.
func (c hostCheck) hold() (d decision, held bool) {
	detail := awaits(c.missing)
	if c.unknown != nil {
		detail = c.unknown.Error()
	}
	if !c.applies || c.unknown == nil && len(c.missing) == 0 {
		return decision{}, false
	}
	return decision{status: Status{Waiting, detail}, after: requeueAfter}, true
}

// awaits names the hosts that delay the first binding.
func awaits(hosts []string) string {
	return AwaitsHosts + "; no heartbeat from " + strings.Join(hosts, ", ")
}

// withoutReplica names the hosts whose kube-apiserver calls a missing replica.
func withoutReplica(hosts []string) string {
	return "kube-apiserver runs without a replica beside it and refuses Pods on " + strings.Join(hosts, ", ")
}

// hostChecker is a leader's history of the hosts.
type hostChecker struct {
	lines    map[string]heartbeat // nil before the first check of several hosts
	missing  map[string]time.Time // since when
	reported []string             // the hosts of the last Event
}

// heartbeat is a line and since when it is unchanged, by our clock: the clocks of hosts differ. The
// age of a line that has not changed since the first check is unknown.
type heartbeat struct {
	line  string
	since time.Time
	moved bool
}

// look compares the lines with those of the last check.
func (c *hostChecker) look(hosts []string, self string, counts func(line) bool, lines map[string]string, now time.Time) hostCheck {
	if len(hosts) < 2 {
		*c = hostChecker{}
		return hostCheck{applies: true}
	}
	first, last := c.lines == nil, c.lines
	c.lines = map[string]heartbeat{}
	check := hostCheck{applies: true}
	for host, encoded := range lines {
		beat, known := last[host]
		if !known || beat.line != encoded {
			beat = heartbeat{line: encoded, since: now, moved: !first}
		}
		c.lines[host] = beat
		if now.Sub(beat.since) > heartbeatTimeout {
			check.stale = append(check.stale, host)
		}
	}
	for _, host := range hosts {
		// This replica knows better what is true of its own host.
		if beat := c.lines[host]; host != self && !(beat.alive(now) && counts(readLine(beat.line))) {
			check.missing = append(check.missing, host)
		}
	}
	c.note(check.missing, now)
	check.shown = c.longer(shownAfter, now)
	slices.Sort(check.stale)
	return check
}

func (b heartbeat) alive(now time.Time) bool {
	return b.moved && now.Sub(b.since) <= heartbeatTimeout
}

// note records since when each host has been missing.
func (c *hostChecker) note(missing []string, now time.Time) {
	since := map[string]time.Time{}
	for _, host := range missing {
		since[host] = now
		if before, ok := c.missing[host]; ok {
			since[host] = before
		}
	}
	c.missing = since
}

// longer returns the hosts that have been missing for at least d.
func (c *hostChecker) longer(d time.Duration, now time.Time) []string {
	var hosts []string
	for _, host := range slices.Sorted(maps.Keys(c.missing)) {
		if now.Sub(c.missing[host]) >= d {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// checkHosts checks which hosts have a replica, if that matters. In mode static it must have the
// files loaded.
func (r *Registrar) checkHosts(now time.Time, active bool) hostCheck {
	reporter := r.config.Hosts
	if reporter == nil || !r.config.PerHost() {
		return hostCheck{}
	}
	if !reporter.synced() {
		unknown := errors.New("the identity Leases of kube-apiserver are not listed yet")
		return hostCheck{applies: true, unknown: unknown}
	}
	live, counts := now, func(l line) bool {
		// A caBundle that is yet to be bound has not the CA of a host in mode static.
		return l.Endpoint == r.config.Endpoint("") && (active || !l.Static)
	}
	if r.config.Mode == Static {
		// What is deleted protects also a host with a slow clock, so that the age of a Lease does not matter.
		live, counts = time.Time{}, func(l line) bool { return l.Static }
	}
	hosts := apiservers.Hosts(identities(reporter.leases.GetStore()), live)
	lines, _, err := readHosts(reporter.object())
	if err != nil && len(hosts) > 1 {
		return hostCheck{applies: true, unknown: err}
	}
	return r.hosts.look(hosts, reporter.config.Host, counts, lines, now)
}

// reportMissing sets the metric and records an Event for hosts that stay without a replica.
func (r *Registrar) reportMissing(ctx context.Context, check hostCheck, active bool, now time.Time) {
	r.config.Metrics.missing(len(check.shown))
	hosts := r.hosts.longer(missingGrace, now)
	if slices.Equal(hosts, r.hosts.reported) {
		return
	}
	if r.hosts.reported = hosts; len(hosts) == 0 {
		return
	}
	note := awaits(hosts)
	if active {
		note = withoutReplica(hosts) + "; start one there, or remove the webhook: " +
			"sa-controller-manager webhook unregister --kubeconfig=/etc/kubernetes/admin.conf"
	}
	klog.FromContext(ctx).Info("Some hosts of kube-apiserver have no replica", "hosts", hosts, "active", active)
	r.warn(mutating, "WebhookHostWithoutReplica", note)
}

// prune removes stale lines, so that commands, which cannot wait for heartbeats, can rely on the
// others. Lines of hosts that are gone for good are removed too. A replica that has just renewed
// its line wins the conflict.
func (r *Registrar) prune(ctx context.Context, stale []string) error {
	if len(stale) == 0 {
		return nil
	}
	object := r.config.Hosts.object()
	if object == nil {
		return nil // it has just been deleted
	}
	data := map[string]any{}
	for _, host := range stale {
		data[hostPrefix+host] = nil
	}
	err := patchHosts(ctx, r.config.Client, map[string]any{"metadata": meta.PatchOf(object), "data": data})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove the entries of %s from %s: %w", strings.Join(stale, ", "), hostsObject, err)
	}
	klog.FromContext(ctx).V(2).Info("Removed the entries of hosts without a heartbeat", "hosts", stale)
	return nil
}

// forgetHosts clears the history when a term ends.
func (r *Registrar) forgetHosts() {
	r.hosts = hostChecker{}
	r.config.Metrics.missing(0)
}
