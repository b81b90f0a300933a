// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"sa-controller-manager/controllers/keyring/ring"
	"sa-controller-manager/internal/apiservers"
)

// HostName is the name of this host, as kube-apiserver there has it: the hostname or, in a Pod with another one, that
// of its node, which the downward API gives to it.
func HostName() (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("find the name of this host: %w", err)
	}
	return cmp.Or(os.Getenv("NODE_NAME"), host), nil
}

// Observed is which hosts there are, as the API has it.
type Observed struct {
	// Leases are the hosts of kube-apiservers, with when each has renewed its identity Lease.
	Leases map[string]string
	// Nodes reports whether a Node of a name exists, for those of which that is known.
	Nodes map[string]bool
}

// Observe looks up the kube-apiservers and the Nodes of the hosts that are known.
func Observe(ctx context.Context, client kubernetes.Interface, p Published) (Observed, error) {
	leases, err := apiservers.Renewals(ctx, client)
	if err != nil {
		return Observed{}, err
	}
	seen := Observed{Leases: leases, Nodes: map[string]bool{}}
	for name := range sets.KeySet(leases).Insert(p.names()...) {
		_, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err == nil || apierrors.IsNotFound(err) {
			seen.Nodes[name] = err == nil
		} // without the permission a host stays until it is forgotten
	}
	return seen, nil
}

// Meet records the kube-apiservers and the Nodes that were seen. A host whose Node was seen and is gone is
// forgotten, with its entry.
func (p *Published) Meet(seen Observed) {
	p.cloneHosts()
	for name, renewed := range seen.Leases {
		if host := p.Hosts[name]; host.Forgotten == "" || host.Forgotten != renewed {
			host.APIServer, host.Forgotten = true, ""
			p.Hosts[name] = host
		}
	}
	for name, exists := range seen.Nodes {
		host := p.Hosts[name]
		switch {
		case exists:
			host.Node = true
			p.Hosts[name] = host
		case host.Node:
			p.Forget(name, seen.Leases[name])
		}
	}
}

func (p *Published) cloneHosts() {
	hosts := map[string]Host{}
	maps.Copy(hosts, p.Hosts)
	p.Hosts = hosts
}

// Forget removes a host. renewed is when its kube-apiserver has renewed the identity Lease, "" if there is none.
func (p *Published) Forget(host, renewed string) {
	p.Entries = slices.DeleteFunc(slices.Clone(p.Entries), func(entry Entry) bool { return entry.Host == host })
	p.cloneHosts()
	if delete(p.Hosts, host); renewed != "" {
		p.Hosts[host] = Host{Forgotten: renewed}
	}
	if p.Claim.Host == host {
		p.Claim = Claim{}
	}
}

// Forget removes a host from what is published: no step waits for it any more. A host that lives is back with the
// next entry, or the next renewal of its kube-apiserver's identity Lease.
func Forget(ctx context.Context, client kubernetes.Interface, host string) error {
	leases, err := apiservers.Renewals(ctx, client)
	if err != nil {
		return err
	}
	return Edit(ctx, client, func(p *Published) error {
		before, names := len(p.Entries), p.names()
		if p.Forget(host, leases[host]); len(p.Entries) == before && !slices.Contains(names, host) {
			return &ring.Refusal{Reason: fmt.Sprintf("no host %q is known", host), Remedy: fmt.Sprintf("known are %q", names), Done: true}
		}
		return nil
	})
}

// names returns the hosts that are known, sorted.
func (p Published) names() []string {
	names := p.APIServers()
	if p.Claim.Host != "" {
		names = append(names, p.Claim.Host)
	}
	for _, entry := range p.Entries {
		names = append(names, entry.Host)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Refresh reads what is published, and records which hosts there are if record is set, with further changes.
func Refresh(ctx context.Context, client kubernetes.Interface, record bool, changes ...func(*Published)) (Published, error) {
	p, err := Fetch(ctx, client)
	if err != nil {
		return p, err
	}
	seen, err := Observe(ctx, client, p)
	if err != nil {
		return p, err
	}
	if p.Meet(seen); !record {
		return p, nil
	}
	return p, Edit(ctx, client, func(live *Published) error {
		live.Meet(seen)
		for _, change := range changes {
			change(live)
		}
		p = *live
		return nil
	})
}

// watchInterval is how often Watch looks up the kube-apiservers.
const watchInterval = 30 * time.Second

// Watch publishes, on the leader or in each process that only signs, which kube-apiservers there are, so that one that
// is down is not forgotten, and since when nothing signs with a retired key: what a prune waits for, so that it outlives
// every process. It returns when ctx ends.
func Watch(ctx context.Context, client kubernetes.Interface, state func() ring.State) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		_, err := Refresh(ctx, client, true, func(p *Published) { p.follow(state(), time.Now()) })
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Could not publish which kube-apiservers there are")
		}
	}, watchInterval)
}

// Follow records since when nothing signs with a retired key. What was known of an earlier retirement goes. all says that
// every kube-apiserver was asked, so that one which signs is no unknown.
func (p *Published) Follow(state ring.State, signs func(id string) bool, all bool, now time.Time) {
	followed := map[string]time.Time{}
	for _, key := range state.Retired() {
		if signs(key.ID) {
			continue
		}
		if since, known := p.Followed[key.ID]; known {
			followed[key.ID] = since
		} else if all {
			followed[key.ID] = now.UTC().Truncate(time.Second)
		}
	}
	p.Followed = followed
}

// follow is Follow of what hosts say of themselves: on each host of a kube-apiserver a process has to sign for it.
func (p *Published) follow(state ring.State, now time.Time) {
	all := !slices.ContainsFunc(p.APIServers(), func(host string) bool {
		entry, known := p.Entry(host)
		return !known || !entry.Signer
	})
	p.Follow(state, func(id string) bool { return p.Signer(id) != "" }, all, now)
}

// Signer returns the host that signs with a key, "" if none does but those of without.
func (p Published) Signer(id string, without ...string) string {
	for _, entry := range p.Entries {
		if entry.SignsWith == id && !slices.Contains(without, entry.Host) {
			return "host " + entry.Host
		}
	}
	return ""
}
