// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/internal/check"
	"sa-controller-manager/manifests/component"
	"sa-controller-manager/manifests/staticpod"
)

const takeOver = "run sa-controller-manager kubeadm takeover on that node, and pass its --patches to the next kubeadm upgrade"

// The facts about the static pods of a control plane.
var (
	pluginOn = check.Fact{
		Code: "apiserver-stock", Message: "kube-apiservers run the plugin ServiceAccount although the webhook does its work",
		Cost: "two do the same", Remedy: takeOver,
	}
	managerStock = check.Fact{
		Code: "controller-manager-stock", Message: "kube-controller-managers run controllers of the manager, too",
		Cost: "both write the same objects", Remedy: takeOver,
	}
	runNowhere = check.Fact{
		Code: "controller-nowhere", Message: "controllers are off in kube-controller-manager and run in no sa-controller-manager",
		Cost: "new namespaces lack what Pods need",
		Remedy: "have a replica lead, without these names in its --controllers; or remove them from --controllers of " +
			"kube-controller-manager",
	}
)

// controlPlaneFindings finds what "kubeadm upgrade" without our patches has reset, and controllers that run nowhere, by the
// mirror pods. bound says that the API binds the webhook, and lease, which may be nil, who leads.
func controlPlaneFindings(pods []corev1.Pod, bound bool, lease *coordinationv1.Lease, now time.Time) check.Result {
	leads := lease != nil && ptr.Deref(lease.Spec.HolderIdentity, "") != "" && lease.Spec.RenewTime != nil &&
		now.Before(lease.Spec.RenewTime.Add(time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0))*time.Second))
	servers, kcms, own := onHosts(pods, component.APIServer), onHosts(pods, component.ControllerManager), onHosts(pods, component.Manager)
	var plugins, doubled []string
	for host, server := range servers {
		fromFiles := staticpod.CommandOf(own[host]).Last("webhook-registration") == string(registration.Static)
		if !component.PluginIsOff(staticpod.CommandOf(server)) && (bound || fromFiles) {
			plugins = append(plugins, server.Name)
		}
	}
	for host, kcm := range kcms {
		ours := staticpod.CommandOf(own[host]) // without a command it runs all
		names := slices.DeleteFunc(component.Stock(kcm.Spec.Containers[0].Image, staticpod.CommandOf(kcm)),
			func(name string) bool { return !component.Enabled(ours, name) })
		if leads && len(names) > 0 {
			doubled = append(doubled, kcm.Name+" ("+strings.Join(names, ", ")+")")
		}
	}
	slices.Sort(plugins)
	slices.Sort(doubled)
	findings := slices.Concat(runNowhere.Found().About(runningNowhere(kcms, own, leads)), pluginOn.Found().About(plugins),
		managerStock.Found().About(doubled))
	switch {
	case len(servers)+len(kcms) == 0:
		return check.Skip("no static pods of kube-apiserver and kube-controller-manager")
	case !bound && !leads && len(findings) == 0:
		return check.Skip("the webhook is not bound, and no replica leads")
	}
	return check.Result{Findings: findings, Note: fmt.Sprintf("static pods: %d", len(servers)+len(kcms))}
}

// onHosts returns the mirror pods of a component, by node.
func onHosts(pods []corev1.Pod, name string) map[string]*corev1.Pod {
	found := map[string]*corev1.Pod{}
	for i := range pods {
		node := pods[i].Spec.NodeName
		if _, mirror := pods[i].Annotations[corev1.MirrorPodAnnotationKey]; mirror && pods[i].Name == name+"-"+node {
			found[node] = &pods[i]
		}
	}
	return found
}

// runningNowhere returns the controllers without which a namespace can have no Pods, and which are off in every
// kube-controller-manager and do not run in ours. A replica that leads need not be a mirror pod.
func runningNowhere(kcms, own map[string]*corev1.Pod, leads bool) (names []string) {
	for _, name := range []string{options.ServiceAccountController, options.RootCACertificatePublisher} {
		run := func(pods map[string]*corev1.Pod) bool {
			on := func(pod *corev1.Pod) bool { return component.Enabled(staticpod.CommandOf(pod), name) }
			return slices.ContainsFunc(slices.Collect(maps.Values(pods)), on)
		}
		if len(kcms) > 0 && !run(kcms) && (!leads || len(own) > 0 && !run(own)) {
			names = append(names, name)
		}
	}
	return names
}
