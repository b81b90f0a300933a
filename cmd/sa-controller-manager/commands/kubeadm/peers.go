// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod"
)

// The registration names the webhook by a loopback address, so each kube-apiserver calls
// the process on its own node, and all of them do so as soon as one process has bound it.
// Hence what these looks are for: no kube-apiserver of any node may be without its
// neighbour while the webhook is bound, and none without its plugin while it is not.

// mirrors are the mirror pods of a component on all nodes, by node.
func (c *Config) mirrors(ctx context.Context, component string) (map[string]*corev1.Pod, error) {
	pods, err := c.Client.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the Pods of kube-system: %w", err)
	}
	found := map[string]*corev1.Pod{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		_, isMirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
		if isMirror && pod.Name == component+"-"+pod.Spec.NodeName {
			found[pod.Spec.NodeName] = pod
		}
	}
	return found, nil
}

// mayRegister looks whether all other control-plane nodes run our process already. One
// that does not register anything may be the first, and one that waits for the others
// before it binds.
func (c *Config) mayRegister(o *observed) cli.Look {
	return func(ctx context.Context) error {
		if !registers(c.ownManifest(o)) {
			return nil
		}
		servers, err := c.mirrors(ctx, apiServer)
		if err != nil {
			return err
		}
		managers, err := c.mirrors(ctx, manager)
		if err != nil {
			return err
		}
		alone := nodesWithoutManager(servers, c.Node, managers)
		if len(alone) > 0 && ownFlag(c.ownManifest(o), "webhook-await-hosts") != "false" {
			// Only those that have an identity Lease are waited for.
			hosts, err := registration.LiveHosts(ctx, c.Client, c.Clock.Now())
			if err != nil || len(hosts) >= len(servers) {
				return err
			}
		}
		if len(alone) > 0 {
			return cli.Permanent(fmt.Errorf("kube-apiserver runs on %s too, without sa-controller-manager beside it, and would refuse Pods there as soon as the webhook is bound; first, on each control-plane node: kubeadm takeover --steps=manager --extra-arg=--webhook-registration=none",
				strings.Join(alone, ", ")))
		}
		return nil
	}
}

// orAwaitsPeers is nil if what is missing is not on this node: our process is well, and
// binds the webhook once its neighbours on other nodes answer. Otherwise it is why.
func (c *Config) orAwaitsPeers(ctx context.Context, why error) error {
	host, err := os.Hostname()
	if err != nil {
		return errors.Join(why, err)
	}
	missing, err := registration.HostsWithoutReplica(ctx, c.Client, c.Clock.Now())
	if err != nil || len(missing) == 0 || slices.Contains(missing, host) {
		return errors.Join(why, err)
	}
	fmt.Fprintf(c.Out, "The webhook binds once sa-controller-manager runs with --webhook-registration=url on %s too: kubeadm takeover --steps=%s there, then kubeadm takeover once more on each node.\n",
		strings.Join(missing, ", "), StepManager)
	return nil
}

// nodesWithoutManager are the nodes beside this one that have the first and lack the second, ready.
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

// pluginsOn looks whether every kube-apiserver has its plugin, which its Pod says. Where the
// webhook is out already there is nothing to lose.
func (c *Config) pluginsOn(ctx context.Context) error {
	if c.unbound(ctx) == nil {
		return nil
	}
	servers, err := c.mirrors(ctx, apiServer)
	if err != nil {
		return err
	}
	hosts, err := registration.LiveHosts(ctx, c.Client, c.Clock.Now())
	if err != nil {
		return err
	}
	if servers[c.Node] == nil || len(servers) < len(hosts) {
		return fmt.Errorf("the kubelets show the Pod of kube-apiserver on %q only, and one runs here and on each of %q", slices.Sorted(maps.Keys(servers)), hosts)
	}
	var off []string
	for node, pod := range servers {
		if len(pod.Spec.Containers) == 1 && pluginIsOff(pod.Spec.Containers[0].Command) {
			off = append(off, node)
		}
	}
	if len(off) == 0 {
		return nil
	}
	slices.Sort(off)
	return cli.Permanent(fmt.Errorf("kube-apiserver on %s has no ServiceAccount plugin, and without the webhook its Pods would get no account; first, there: kubeadm handback --steps=%s,%s; where it had none before the takeover: sa-controller-manager webhook unregister",
		strings.Join(off, ", "), StepAPIServer, StepControllerManager))
}

func pluginIsOff(command []string) bool {
	return slices.Contains(staticpod.Split(strings.Join(flagsIn(command, disableFlag), ",")), pluginName)
}

// deleteConfigurations deletes the two webhook configurations, once nobody is left who
// could miss the annotation on them.
func (c *Config) deleteConfigurations(ctx context.Context) error {
	managers, err := c.mirrors(ctx, manager)
	if err != nil {
		return err
	}
	if len(managers) > 0 {
		fmt.Fprintf(c.Out, "%s stay, switched off: sa-controller-manager still runs on another node.\n", registration.Name)
		return nil
	}
	if err := registration.Delete(ctx, c.Client); err != nil {
		return errors.Join(errors.New("the webhook configurations are still there"), err)
	}
	return nil
}
