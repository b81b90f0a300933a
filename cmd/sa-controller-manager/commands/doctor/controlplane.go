// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/component"
)

const fixStock = "run sa-controller-manager kubeadm takeover on that node, and pass its --patches to the next kubeadm upgrade"

// checkControlPlane finds components that "kubeadm upgrade" without our patches has reset. It finds
// only static pods.
func checkControlPlane(ctx context.Context, c *cluster) (answer, error) {
	leads, err := c.leads(ctx)
	if err != nil {
		return answer{}, err
	}
	registered, err := registration.Inspect(ctx, c.Client)
	if err != nil {
		return answer{}, err
	}
	pods, err := c.Client.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
	if err != nil {
		return answer{}, fmt.Errorf("list the Pods of kube-system: %w", err)
	}
	servers, managers, count := component.Stock(pods.Items)
	bound := bothBound(registered)
	findings := about(component.RunNowhere(pods.Items, leads), "controller-nowhere",
		"controllers that are off in kube-controller-manager and run in no sa-controller-manager: new namespaces lack what Pods need",
		"have a replica lead, without these names in its --controllers; or remove them from --controllers of kube-controller-manager")
	switch {
	case count == 0:
		return skipped("no static pods of kube-apiserver and kube-controller-manager"), nil
	case !bound && !leads && len(findings) == 0:
		return skipped("the webhook is not bound, and no replica leads"), nil
	}
	if len(servers) > 0 && bound {
		findings = append(findings, found("apiserver-stock", "kube-apiservers that run the plugin ServiceAccount although the webhook is bound",
			fixStock, servers...))
	}
	if len(managers) > 0 && leads {
		findings = append(findings, found("controller-manager-stock", "kube-controller-managers that run controllers of the manager, too",
			fixStock, managers...))
	}
	findings = append(findings, badTakeovers(pods.Items)...)
	return answer{Findings: findings, Note: fmt.Sprintf("static pods: %d", count)}, nil
}

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

// leads reports whether a replica holds the Lease of leader election, so that our controllers run.
func (c *cluster) leads(ctx context.Context) (bool, error) {
	lease, err := c.Client.CoordinationV1().Leases(c.LeaseNamespace).Get(ctx, c.LeaseName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the Lease %s/%s: %w", c.LeaseNamespace, c.LeaseName, err)
	}
	if ptr.Deref(lease.Spec.HolderIdentity, "") == "" || lease.Spec.RenewTime == nil {
		return false, nil
	}
	life := time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second
	return c.Clock.Now().Before(lease.Spec.RenewTime.Add(life)), nil
}
