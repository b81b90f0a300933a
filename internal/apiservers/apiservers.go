// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apiservers is the home of the rule which kube-apiservers there are: the hosts by their identity
// Leases, and the addresses by the Service kubernetes. It also reads documents of the API server that
// clientsets have no function for.
package apiservers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes"
)

// identitySelector selects the identity Leases of kube-apiservers
// (pkg/controlplane/apiserver/server.go).
const identitySelector = "apiserver.kubernetes.io/identity=kube-apiserver"

// IdentityAge is how long a kube-apiserver counts as running after it has renewed its Lease. It
// renews every 10 s, with a duration of an hour. One that has failed thirty times does not reach
// etcd and creates no Pods. The clocks of hosts may differ by as much.
const IdentityAge = 5 * time.Minute

// recent returns the hosts of the running kube-apiservers, sorted. A Lease without a host counts under
// its own name: that is safer than to overlook a kube-apiserver.
//
// A Lease counts as old only if it is old both by our clock and by the newest Lease: a fast clock,
// ours or that of one host, must not hide the others.
func recent(leases []coordinationv1.Lease, now time.Time) []string {
	var newest time.Time
	for i := range leases {
		if renewed := leases[i].Spec.RenewTime; renewed != nil && renewed.After(newest) {
			newest = renewed.Time
		}
	}
	if newest.Before(now) {
		now = newest
	}
	var hosts []string
	for i := range leases {
		lease := &leases[i]
		if renewed := lease.Spec.RenewTime; renewed != nil && now.Sub(renewed.Time) > IdentityAge {
			continue
		}
		hosts = append(hosts, cmp.Or(lease.Labels[corev1.LabelHostname], lease.Name))
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// LiveHosts returns the hosts of kube-apiservers with a recent identity Lease, from the API.
func LiveHosts(ctx context.Context, client kubernetes.Interface, now time.Time) ([]string, error) {
	leases, err := identities(ctx, client)
	return recent(leases, now), err
}

// Renewals returns the hosts of all kube-apiservers that have an identity Lease, which lives for an hour, and
// when each of them was renewed. Whether one has changed says more than how old it is: clocks differ.
func Renewals(ctx context.Context, client kubernetes.Interface) (map[string]string, error) {
	leases, err := identities(ctx, client)
	if err != nil {
		return nil, err
	}
	renewals := map[string]string{}
	for i := range leases {
		host, renewed := cmp.Or(leases[i].Labels[corev1.LabelHostname], leases[i].Name), "never"
		if at := leases[i].Spec.RenewTime; at != nil {
			renewed = at.UTC().Format(time.RFC3339Nano)
		}
		// A host has one Lease for each kube-apiserver that it has had within the hour.
		renewals[host] = max(renewals[host], renewed)
	}
	return renewals, nil
}

// identities returns the identity Leases.
func identities(ctx context.Context, client kubernetes.Interface) ([]coordinationv1.Lease, error) {
	list, err := client.CoordinationV1().Leases(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: identitySelector})
	if err != nil {
		return nil, fmt.Errorf("list the identity Leases of kube-apiserver: %w", err)
	}
	return list.Items, nil
}

// Addresses returns the URLs of the kube-apiservers behind the Service kubernetes.
func Addresses(ctx context.Context, client kubernetes.Interface) ([]string, error) {
	ofKubernetes := metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=kubernetes"}
	list, err := client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).List(ctx, ofKubernetes)
	if err != nil {
		return nil, fmt.Errorf("look up the addresses of kube-apiserver: %w", err)
	}
	var urls []string
	for _, slice := range list.Items {
		if len(slice.Ports) != 1 || slice.Ports[0].Port == nil {
			continue
		}
		for _, endpoint := range slice.Endpoints {
			for _, address := range endpoint.Addresses {
				urls = append(urls, "https://"+net.JoinHostPort(address, strconv.Itoa(int(*slice.Ports[0].Port))))
			}
		}
	}
	return urls, nil
}

// OwnAddress returns the address that a kube-apiserver gives to its clients: its --advertise-address, by which it is known
// whatever it was reached by. One with an --external-hostname is an error, because others may have the same.
func OwnAddress(ctx context.Context, client kubernetes.Interface) (netip.AddrPort, error) {
	ctx, cancel := context.WithTimeout(ctx, contactTimeout)
	defer cancel()
	body, err := Getter(client)(ctx, "/api")
	var document metav1.APIVersions
	if err == nil {
		err = json.Unmarshal(body, &document)
	}
	if err != nil || len(document.ServerAddressByClientCIDRs) == 0 {
		return netip.AddrPort{}, fmt.Errorf("ask kube-apiserver for its address: %w", cmp.Or(err, errors.New("it names none")))
	}
	return netip.ParseAddrPort(document.ServerAddressByClientCIDRs[0].ServerAddress)
}

// contactTimeout bounds the request of Version, so that a connection that hangs is an error too.
const contactTimeout = 5 * time.Second

// Version asks for /version, which is answered as soon as anything is. The typed call for it takes
// no context.
func Version(ctx context.Context, client kubernetes.Interface) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, contactTimeout)
	defer cancel()
	body, err := Getter(client)(ctx, "/version")
	if err != nil {
		return "", err
	}
	var info version.Info
	if err := json.Unmarshal(body, &info); err != nil {
		return "", fmt.Errorf("read /version: %w", err)
	}
	return info.GitVersion, nil
}

// Getter returns a function that reads a path of the API server.
func Getter(client kubernetes.Interface) func(context.Context, string) ([]byte, error) {
	return func(ctx context.Context, path string) ([]byte, error) {
		// Some of them also come as protobuf, which clients prefer.
		answer := client.Discovery().RESTClient().Get().AbsPath(path).SetHeader("Accept", "application/json, */*").Do(ctx)
		// Raw would leave the message of a refusal undecoded.
		if err := answer.Error(); err != nil {
			return nil, err
		}
		return answer.Raw()
	}
}
