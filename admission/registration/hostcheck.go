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

	"sa-controller-manager/internal/meta"
)

const (
	// heartbeatTimeout is how long a line may stay as it is: a few heartbeats may be lost.
	heartbeatTimeout = 3 * heartbeatInterval

	// shownAfter is how long a host is missing before that is shown. A leader begins without
	// knowing how old any line is, and hears from each replica within a heartbeatInterval.
	shownAfter = 2 * heartbeatInterval

	// missingGrace is how long a host may be missing before an Event says so. The static
	// pods of a node that joins do not start at the same time.
	missingGrace = time.Minute
)

// AwaitsHosts begins what Status says while hosts are missing. Users and kubeadm takeover
// know it.
const AwaitsHosts = "every kube-apiserver needs a replica on its own host before the webhook binds"

// hostCheck is what is known of the hosts whose kube-apiserver calls the replica beside it.
// Its zero value is for a registration that every kube-apiserver reaches the same way.
type hostCheck struct {
	applies bool
	unknown error    // why nothing of what follows is known
	missing []string // hosts without a heartbeat; none where there is one host only
	shown   []string // those that have been missing for longer than shownAfter
	stale   []string // lines that no replica keeps any more
}

// hold decides whether a webhook that nobody calls yet has to wait, and for what: no
// kube-apiserver may be told to call it that does not reach one.
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

// awaits names hosts that hold up what nobody calls yet.
func awaits(hosts []string) string {
	return AwaitsHosts + "; no heartbeat from " + strings.Join(hosts, ", ")
}

// withoutReplica names hosts whose kube-apiserver calls a webhook that is not there.
func withoutReplica(hosts []string) string {
	return "kube-apiserver runs without a replica beside it and refuses Pods on " + strings.Join(hosts, ", ")
}

// hostChecker is what a leader remembers of the hosts.
type hostChecker struct {
	lines    map[string]heartbeat // nil before the first look at several hosts
	missing  map[string]time.Time // since when
	reported []string             // the hosts of the last Event
}

// heartbeat is a line as it has been since a time by our clock: the clocks of hosts differ.
// Nobody knows the age of a line that was there at the first look and has not moved since.
type heartbeat struct {
	line  string
	since time.Time
	moved bool
}

// look compares the lines with those of the last look.
func (c *hostChecker) look(hosts []string, self, endpoint string, lines map[string]string, now time.Time) hostCheck {
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
		// That this replica is reached on its own host was proved by the probe.
		if host != self && !c.lines[host].alive(endpoint, now) {
			check.missing = append(check.missing, host)
		}
	}
	c.note(check.missing, now)
	check.shown = c.longer(shownAfter, now)
	slices.Sort(check.stale)
	return check
}

func (b heartbeat) alive(endpoint string, now time.Time) bool {
	return b.moved && now.Sub(b.since) <= heartbeatTimeout && readLine(b.line).Endpoint == endpoint
}

// note remembers since when each host has been missing.
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

// longer are the hosts that have been missing for at least d.
func (c *hostChecker) longer(d time.Duration, now time.Time) []string {
	var hosts []string
	for _, host := range slices.Sorted(maps.Keys(c.missing)) {
		if now.Sub(c.missing[host]) >= d {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// checkHosts looks which hosts have a replica, if that matters.
func (r *Registrar) checkHosts(now time.Time) hostCheck {
	reporter := r.config.Hosts
	if reporter == nil || !r.config.PerHost() {
		return hostCheck{}
	}
	if !reporter.synced() {
		unknown := errors.New("the identity Leases of kube-apiserver are not listed yet")
		return hostCheck{applies: true, unknown: unknown}
	}
	hosts := liveHosts(identities(reporter.leases.GetStore()), now)
	lines, _, err := readHosts(reporter.object())
	if err != nil && len(hosts) > 1 {
		return hostCheck{applies: true, unknown: err}
	}
	return r.hosts.look(hosts, reporter.config.Host, r.config.Endpoint(""), lines, now)
}

// reportMissing makes hosts known that stay without a replica.
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
		note = withoutReplica(hosts) + "; start one there, or take the webhook out: " +
			"sa-controller-manager webhook unregister --kubeconfig=/etc/kubernetes/admin.conf"
	}
	klog.FromContext(ctx).Info("Hosts of kube-apiserver have no replica", "hosts", hosts, "active", active)
	r.warn(mutating, "WebhookHostWithoutReplica", "Register", note)
}

// prune removes lines that no replica keeps any more, so that those that are there can be
// relied on by a command that has no time to watch. The lines of hosts that are gone for good
// go with them. A replica that has just renewed its line wins.
func (r *Registrar) prune(ctx context.Context, stale []string) error {
	if len(stale) == 0 {
		return nil
	}
	object := r.config.Hosts.object()
	if object == nil {
		return nil // it was deleted just now
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
		return fmt.Errorf("remove the lines of %s from %s: %w", strings.Join(stale, ", "), hostsObject, err)
	}
	klog.FromContext(ctx).V(2).Info("Removed the lines of hosts without heartbeat", "hosts", stale)
	return nil
}

// forgetHosts is for a replica that no longer leads.
func (r *Registrar) forgetHosts() {
	r.hosts = hostChecker{}
	r.config.Metrics.missing(0)
}
