// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"net"
	"net/url"
	"strings"
	"time"

	"k8s.io/utils/ptr"

	"sa-controller-manager/internal/apiservers"
)

const (
	// hostsInterval is how often the hosts are listed: the Lease of a host that is gone counts for minutes.
	hostsInterval = time.Minute
	hostsTimeout  = 5 * time.Second
)

// severalHosts begins what Status says of a loopback URL in a cluster with several hosts.
const severalHosts = "a loopback URL leads each kube-apiserver to its own host, and they run on several: "

// PerHost reports whether each kube-apiserver reaches only the process on its own host.
func (s Spec) PerHost() bool {
	return (s.Mode == URL || s.Mode == Static) && (s.Host == "localhost" || net.ParseIP(s.Host).IsLoopback())
}

// hosts are those on which kube-apiservers run, in as far as they matter: for a loopback URL.
type hosts struct {
	checked bool
	at      time.Time
	live    []string
	unknown error // why they are not known
}

// problem returns why a loopback URL must not bind, "" if it may. Unknown hosts are not one host.
func (h hosts) problem() string {
	switch {
	case !h.checked:
		return ""
	case h.unknown != nil:
		return "the hosts of kube-apiserver are unknown, and a loopback URL is for one: " + h.unknown.Error()
	case len(h.live) > 1:
		return severalHosts + strings.Join(h.live, ", ") + "; use --webhook-registration=static or service"
	}
	return ""
}

// checkHosts lists the hosts if they matter, at most once in an interval.
func (r *Registrar) checkHosts(ctx context.Context, now time.Time) hosts {
	if r.config.Mode != URL || !r.config.PerHost() {
		return hosts{}
	}
	if !r.hosts.checked || now.Sub(r.hosts.at) >= hostsInterval {
		ctx, cancel := context.WithTimeout(ctx, hostsTimeout)
		defer cancel()
		live, err := apiservers.LiveHosts(ctx, r.config.Client, now)
		r.hosts = hosts{checked: true, at: now, live: live, unknown: err}
		r.config.Metrics.urlHosts(len(live))
	}
	return r.hosts
}

func isPerHost(e entry) bool {
	u, err := url.Parse(ptr.Deref(e.ClientConfig.URL, ""))
	return err == nil && (Spec{Mode: URL, Host: u.Hostname()}).PerHost()
}
