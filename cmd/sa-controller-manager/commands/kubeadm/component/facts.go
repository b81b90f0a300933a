// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/internal/check"
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
	// AdmissionConfigChanged is found on the host alone, by the files there.
	AdmissionConfigChanged = check.Fact{
		Code: "admission-config-changed", Message: "kube-apiserver does not have the operator's admission configuration as it is now",
		Cost: "what was changed in it has no effect",
		Remedy: "on that node: sa-controller-manager kubeadm handback --steps=kube-apiserver, then kubeadm takeover " +
			"with the flags of the first one",
	}
	byURL = check.Fact{
		Code: "registered-by-url", Message: "the webhook is in the API although kube-apiserver could read it from files",
		Cost: "clients of the API can delete it", Remedy: "on that node: sa-controller-manager kubeadm handback, then kubeadm takeover " +
			"with the flags of the first one",
	}
)

// Findings finds what "kubeadm upgrade" without our patches has reset, and controllers that run nowhere, by the mirror
// pods. bound says that the API binds the webhook, and lease, which may be nil, who leads.
func Findings(pods []corev1.Pod, bound bool, lease *coordinationv1.Lease, now time.Time) check.Result {
	leads := lease != nil && ptr.Deref(lease.Spec.HolderIdentity, "") != "" && lease.Spec.RenewTime != nil &&
		now.Before(lease.Spec.RenewTime.Add(time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0))*time.Second))
	servers, managers, count := Stock(pods)
	findings := runNowhere.Found().About(RunNowhere(pods, leads))
	switch {
	case count == 0:
		return check.Skip("no static pods of kube-apiserver and kube-controller-manager")
	case !bound && !leads && len(findings) == 0:
		return check.Skip("the webhook is not bound, and no replica leads")
	}
	if !bound {
		servers = nil
	}
	besideFiles, urls := byRegistration(pods)
	findings = append(findings, pluginOn.Found().About(append(servers, besideFiles...))...)
	if leads {
		findings = append(findings, managerStock.Found().About(managers)...)
	}
	return check.Result{Findings: append(findings, byURL.Found().About(urls)...), Note: fmt.Sprintf("static pods: %d", count)}
}

// byRegistration returns the kube-apiservers with their plugin beside a process that registers from files, and those that
// read files by now beside one that registers by URL.
func byRegistration(pods []corev1.Pod) (besideFiles, urls []string) {
	servers := map[string]*corev1.Pod{} // by node
	for i := range pods {
		if IsMirror(&pods[i], APIServer) {
			servers[pods[i].Spec.NodeName] = &pods[i]
		}
	}
	for i := range pods {
		server := servers[pods[i].Spec.NodeName]
		if server == nil || !IsMirror(&pods[i], Manager) {
			continue
		}
		main := server.Spec.Containers[0]
		switch mode := registration.Mode(PodFlag(&pods[i], "webhook-registration")); {
		case mode == registration.Static && !PluginIsOff(server):
			besideFiles = append(besideFiles, server.Name)
		case mode == registration.URL && FilesUnasked(main.Image, main.Command):
			urls = append(urls, server.Name)
		}
	}
	return besideFiles, urls
}
