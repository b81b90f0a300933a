// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/component"
)

// badTakeovers finds nodes where "kubeadm upgrade" has changed what a takeover was for: kube-apiserver has
// its plugin again beside a process that registers from files, or reads files by now beside one that
// registers by URL.
func badTakeovers(pods []corev1.Pod) (findings []finding) {
	servers := map[string]*corev1.Pod{} // by node
	for i := range pods {
		if component.IsMirror(&pods[i], component.APIServer) {
			servers[pods[i].Spec.NodeName] = &pods[i]
		}
	}
	for i := range pods {
		server := servers[pods[i].Spec.NodeName]
		if server == nil || !component.IsMirror(&pods[i], component.Manager) {
			continue
		}
		main := server.Spec.Containers[0]
		switch mode := registration.Mode(component.PodFlag(&pods[i], "webhook-registration")); {
		case mode == registration.Static && !component.PluginIsOff(server):
			findings = append(findings, found("apiserver-stock",
				"a kube-apiserver that runs the plugin ServiceAccount although sa-controller-manager registers from files beside it",
				fixStock, server.Name))
		case mode == registration.URL && component.FilesUnasked(main.Image, main.Command):
			findings = append(findings, found("registered-by-url",
				"the webhook is in the API, where clients can delete it, although kube-apiserver could read it from files",
				"on that node: sa-controller-manager kubeadm handback, then kubeadm takeover with the flags of the first one", server.Name))
		}
	}
	return findings
}
