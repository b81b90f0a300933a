// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/component"
	"sa-controller-manager/internal/apiservers"
)

// The webhook is registered with a loopback address: each kube-apiserver calls the process on its own
// node, and all of them do so as soon as one process has bound the webhook. So every kube-apiserver
// needs our process on its node while the webhook is bound, and its plugin while it is not.

// mirrors returns the mirror pods of a component by node.
func (c *Config) mirrors(ctx context.Context, name string) (map[string]*corev1.Pod, error) {
	pods, err := c.Client.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the Pods of kube-system: %w", err)
	}
	found := map[string]*corev1.Pod{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if component.IsMirror(pod, name) {
			found[pod.Spec.NodeName] = pod
		}
	}
	return found, nil
}

// mayRegister checks that our process may bind the webhook: it runs on all other control-plane nodes
// already, it waits for the others before it binds, or it registers nothing.
func (c *Config) mayRegister(o *observed) cli.Look {
	return func(ctx context.Context) error {
		if !registers(c.ownManifest(o)) {
			return nil
		}
		servers, err := c.mirrors(ctx, component.APIServer)
		if err != nil {
			return err
		}
		managers, err := c.mirrors(ctx, manager)
		if err != nil {
			return err
		}
		alone := nodesWithoutManager(servers, c.Node, managers)
		if len(alone) > 0 {
			return cli.Permanent(fmt.Errorf("kube-apiserver runs on %s too, without sa-controller-manager beside it, "+
				"and would refuse Pods there as soon as the webhook is bound; first, on each control-plane node: "+
				"kubeadm takeover --steps=manager --extra-arg=--webhook-registration=none", strings.Join(alone, ", ")))
		}
		return nil
	}
}

// nodesWithoutManager returns the other nodes that run kube-apiserver without a ready process of ours.
func nodesWithoutManager(have map[string]*corev1.Pod, node string, lack map[string]*corev1.Pod) []string {
	var names []string
	for name := range have {
		if pod := lack[name]; name != node && (pod == nil || !ready(pod)) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// pluginsOn checks by the mirror pods that every kube-apiserver has its plugin. It does not matter once
// the webhook is unregistered.
func (c *Config) pluginsOn(ctx context.Context) error {
	if c.unbound(ctx) == nil {
		return nil
	}
	servers, err := c.mirrors(ctx, component.APIServer)
	if err != nil {
		return err
	}
	hosts, err := apiservers.LiveHosts(ctx, c.Client, c.Clock.Now())
	if err != nil {
		return err
	}
	if servers[c.Node] == nil || len(servers) < len(hosts) {
		return fmt.Errorf("the kubelets show a Pod of kube-apiserver only on %q, but it runs here and on each of %q",
			slices.Sorted(maps.Keys(servers)), hosts)
	}
	var off []string
	for node, pod := range servers {
		if component.PluginIsOff(pod) {
			off = append(off, node)
		}
	}
	if len(off) == 0 {
		return nil
	}
	slices.Sort(off)
	return cli.Permanent(fmt.Errorf("kube-apiserver on %s has no ServiceAccount plugin, "+
		"and without the webhook its Pods would get no account; first run on it: kubeadm handback --steps=%s,%s; "+
		"where it had none before the takeover: sa-controller-manager webhook unregister",
		strings.Join(off, ", "), StepAPIServer, StepControllerManager))
}

// deleteConfigurations deletes the two webhook configurations once no process of ours is left that
// would register them again without the annotation.
func (c *Config) deleteConfigurations(ctx context.Context) error {
	managers, err := c.mirrors(ctx, manager)
	if err != nil {
		return err
	}
	if len(managers) > 0 {
		fmt.Fprintf(c.Out, "The configurations %s stay, switched off: sa-controller-manager still runs on another node.\n", registration.Name)
		return nil
	}
	if err := registration.Delete(ctx, c.Client); err != nil {
		return errors.Join(errors.New("the webhook configurations are still there"), err)
	}
	return nil
}
