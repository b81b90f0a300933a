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
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationinformers "k8s.io/client-go/informers/coordination/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// identitySelector selects the identity Leases of kube-apiservers
// (pkg/controlplane/apiserver/server.go).
const identitySelector = "apiserver.kubernetes.io/identity=kube-apiserver"

// identityAge is how long a kube-apiserver counts as running after it has renewed its Lease. It
// renews every 10 s, with a duration of an hour. One that has failed thirty times does not reach
// etcd and creates no Pods. The clocks of hosts may differ by as much. A longer time would delay
// the first binding; a shorter one could bind too early and refuse Pods.
const identityAge = 5 * time.Minute

// PerHost reports whether each kube-apiserver reaches only the replica on its own host.
func (s Spec) PerHost() bool {
	if s.Mode != URL {
		return false
	}
	return s.Host == "localhost" || net.ParseIP(s.Host).IsLoopback()
}

// liveHosts returns the hosts of the running kube-apiservers, sorted. A Lease without a host counts
// under its own name: no replica reports from there, and that is safer than to overlook a
// kube-apiserver.
//
// A Lease counts as old only if it is old both by our clock and by the newest Lease: a fast clock,
// ours or that of one host, must not hide the others.
func liveHosts(leases []*coordinationv1.Lease, now time.Time) []string {
	var newest time.Time
	for _, lease := range leases {
		if renewed := lease.Spec.RenewTime; renewed != nil && renewed.After(newest) {
			newest = renewed.Time
		}
	}
	if newest.Before(now) {
		now = newest
	}
	var hosts []string
	for _, lease := range leases {
		if renewed := lease.Spec.RenewTime; renewed != nil && now.Sub(renewed.Time) > identityAge {
			continue
		}
		host := lease.Labels[corev1.LabelHostname]
		if host == "" {
			host = lease.Name
		}
		hosts = append(hosts, host)
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

func selectIdentities(o *metav1.ListOptions) { o.LabelSelector = identitySelector }

// newIdentityInformer returns an informer of the identity Leases.
func newIdentityInformer(client kubernetes.Interface) cache.SharedIndexInformer {
	return coordinationinformers.NewFilteredLeaseInformer(client, metav1.NamespaceSystem, 0, cache.Indexers{}, selectIdentities)
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

// LiveHosts returns the hosts of kube-apiservers with a recent identity Lease, from the API.
func LiveHosts(ctx context.Context, client kubernetes.Interface, now time.Time) ([]string, error) {
	var options metav1.ListOptions
	selectIdentities(&options)
	list, err := client.CoordinationV1().Leases(metav1.NamespaceSystem).List(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("list the identity Leases of kube-apiserver: %w", err)
	}
	leases := make([]*coordinationv1.Lease, len(list.Items))
	for i := range list.Items {
		leases[i] = &list.Items[i]
	}
	return liveHosts(leases, now), nil
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
	hosts, err := LiveHosts(ctx, client, now)
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
