// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"net"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationinformers "k8s.io/client-go/informers/coordination/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// identitySelector finds the Leases by which each kube-apiserver says that it is there
// (pkg/controlplane/apiserver/server.go).
const identitySelector = "apiserver.kubernetes.io/identity=kube-apiserver"

// identityAge is how long a kube-apiserver is taken for alive after it has renewed its
// Lease, which it does every 10 s and whose own duration is an hour. One that has not
// managed to for thirty times does not reach etcd and creates no Pods. Clocks of hosts
// may differ by as much. Too long holds up the first binding; too short would refuse Pods.
const identityAge = 5 * time.Minute

// PerHost tells whether each kube-apiserver reaches the replica on its own host and no
// other one.
func (s Spec) PerHost() bool {
	if s.Mode != URL {
		return false
	}
	return s.Host == "localhost" || net.ParseIP(s.Host).IsLoopback()
}

// liveHosts are the hosts of the kube-apiservers that live, sorted. A Lease that does not
// name its host counts under its own name: nobody answers to that, and it is safer than
// to overlook a kube-apiserver.
//
// Both our clock and the newest of the Leases have to take one for old: a clock that is
// fast, ours or that of one host, must not hide the others.
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

// newIdentityInformer watches those Leases.
func newIdentityInformer(client kubernetes.Interface) cache.SharedIndexInformer {
	return coordinationinformers.NewFilteredLeaseInformer(client, metav1.NamespaceSystem, 0, cache.Indexers{}, selectIdentities)
}

// identities are the Leases in an informer's store.
func identities(store cache.Store) []*coordinationv1.Lease {
	var leases []*coordinationv1.Lease
	for _, one := range store.List() {
		if lease, ok := one.(*coordinationv1.Lease); ok {
			leases = append(leases, lease)
		}
	}
	return leases
}
