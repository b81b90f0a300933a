// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/internal/apiservers"
	"sa-controller-manager/signing/ring"
)

// Find looks up all kube-apiservers of the cluster, each at its own address, unless Others has them.
// It returns an error with the names of the hosts if it finds fewer addresses than hosts: what one
// kube-apiserver says about a key says nothing about the others. Hosts of without are not asked.
func (c *Cluster) Find(ctx context.Context, without ...string) error {
	if c.found {
		return nil
	}
	hosts, err := apiservers.LiveHosts(ctx, c.Client, time.Now())
	if err != nil {
		return err
	}
	hosts = slices.DeleteFunc(hosts, func(host string) bool { return slices.Contains(without, host) })
	others, asked := c.Others, 1+len(c.Others)
	if len(hosts) > 1 && len(others) == 0 && c.Dial != nil {
		if others, err = c.endpoints(ctx); err != nil {
			return err
		}
		asked = len(others) // the first one is among them
	}
	if asked < len(hosts) {
		return fmt.Errorf("kube-apiserver runs on %d hosts (%s), and only %d can be asked", len(hosts), strings.Join(hosts, ", "), max(asked, 1))
	}
	c.Others, c.found = others, true
	return nil
}

// endpoints returns the kube-apiservers behind the Service kubernetes.
func (c *Cluster) endpoints(ctx context.Context) ([]APIServer, error) {
	ofKubernetes := metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=kubernetes"}
	list, err := c.Client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).List(ctx, ofKubernetes)
	if err != nil {
		return nil, fmt.Errorf("look up the addresses of kube-apiserver: %w", err)
	}
	var found []APIServer
	for _, slice := range list.Items {
		if len(slice.Ports) != 1 || slice.Ports[0].Port == nil {
			continue
		}
		for _, endpoint := range slice.Endpoints {
			for _, address := range endpoint.Addresses {
				url := "https://" + net.JoinHostPort(address, strconv.Itoa(int(*slice.Ports[0].Port)))
				client, err := c.Dial(url)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", url, err)
				}
				found = append(found, APIServer{URL: url, Client: client})
			}
		}
	}
	return found, nil
}

// everyAPIServer refuses a step if a kube-apiserver would not be asked.
func (o *Operator) everyAPIServer(ctx context.Context, without ...string) error {
	if err := o.Cluster.Find(ctx, without...); err != nil {
		return &ring.Refusal{
			Reason: err.Error(), Remedy: "name each of them with --apiserver or, if a host is gone for good, give --without-host=NAME",
		}
	}
	return nil
}

// all returns the kube-apiservers to ask, each at its own address if that is known.
func (c *Cluster) all() []APIServer {
	if len(c.Others) > 0 && c.found {
		return append([]APIServer{{URL: "the kube-apiserver of --kubeconfig", Client: c.Client}}, c.Others...)
	}
	return append([]APIServer{{URL: "kube-apiserver", Client: c.Client}}, c.Others...)
}
