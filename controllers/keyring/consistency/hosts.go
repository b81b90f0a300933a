// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package consistency

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"sa-controller-manager/internal/apiservers"
	"sa-controller-manager/signing/ring"
)

// HostName is the name of this host, as kube-apiserver there has it: the hostname or, in a Pod that has one of its own, that
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
	names := maps.Clone(leases)
	for _, name := range p.names() {
		names[name] = ""
	}
	for name := range names {
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

// Refresh reads what is published, and records which hosts there are if record is set.
func Refresh(ctx context.Context, client kubernetes.Interface, record bool) (Published, error) {
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
		p = *live
		return nil
	})
}
