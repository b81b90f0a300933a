// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationinformers "k8s.io/client-go/informers/coordination/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/internal/apiservers"
)

// PerHost reports whether each kube-apiserver reaches only the replica on its own host.
func (s Spec) PerHost() bool {
	if s.Mode != URL && s.Mode != Static {
		return false
	}
	return s.Host == "localhost" || net.ParseIP(s.Host).IsLoopback()
}

// newIdentityInformer returns an informer of the identity Leases.
func newIdentityInformer(client kubernetes.Interface) cache.SharedIndexInformer {
	return coordinationinformers.NewFilteredLeaseInformer(client, metav1.NamespaceSystem, 0, cache.Indexers{}, apiservers.SelectIdentities)
}

// identities returns the Leases in an informer's store.
func identities(store cache.Store) []*coordinationv1.Lease {
	var leases []*coordinationv1.Lease
	for _, one := range store.List() {
		if lease, ok := one.(*coordinationv1.Lease); ok {
			leases = append(leases, lease)
		}
	}
	return leases
}

// HostsWithoutReplica returns the hosts on which a kube-apiserver has no replica to call, from the
// API. It is empty if that does not matter, or if no replica has ever reported. A missing replica
// is noticed once the leader has removed its line.
func HostsWithoutReplica(ctx context.Context, client kubernetes.Interface, now time.Time) ([]string, error) {
	o, err := mutating.in(client).get(ctx)
	if err != nil {
		return nil, err
	}
	entries := o.webhooks()
	i := slices.IndexFunc(entries, func(e entry) bool { return perHostEndpoint(e) != "" })
	if i < 0 {
		return nil, nil
	}
	hosts, err := apiservers.LiveHosts(ctx, client, now)
	if err != nil || len(hosts) < 2 {
		return nil, err
	}
	object, err := client.CoreV1().ConfigMaps(HostsNamespace).Get(ctx, HostsName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", hostsObject, err)
	}
	lines, _, err := readHosts(object)
	if err != nil {
		return nil, err
	}
	endpoint := perHostEndpoint(entries[i])
	has := func(host string) bool { return readLine(lines[host]).Endpoint == endpoint }
	return slices.DeleteFunc(hosts, has), nil
}

// perHostEndpoint returns the registered endpoint, empty if its Spec is not PerHost.
func perHostEndpoint(e entry) string {
	if e.ClientConfig.URL == nil {
		return ""
	}
	u, err := url.Parse(*e.ClientConfig.URL)
	if err != nil || !(Spec{Mode: URL, Host: u.Hostname()}).PerHost() {
		return ""
	}
	return u.Scheme + "://" + u.Host
}
