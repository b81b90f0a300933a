// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/component"
)

// identityPart is the last part of a client certificate's life, as a divisor: two months of a
// year. By then it should have been renewed, which begins when a third is left.
const identityPart = 6

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
	var findings []finding
	servers, managers, count := component.Stock(pods.Items)
	bound := bothBound(registered)
	switch {
	case count == 0:
		return skipped("no static pods of kube-apiserver and kube-controller-manager"), nil
	case !bound && !leads:
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

// checkIdentity checks the client certificate of the manager, on the node that has it.
func checkIdentity(_ context.Context, c *cluster) (answer, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.ManagerKubeconfig)
	if errors.Is(err, fs.ErrNotExist) {
		return skipped("no " + c.ManagerKubeconfig + " on this host"), nil
	}
	if err != nil {
		return answer{}, fmt.Errorf("%s: %w", c.ManagerKubeconfig, err)
	}
	if err := rest.LoadTLSFiles(config); err != nil {
		return answer{}, fmt.Errorf("%s: %w", c.ManagerKubeconfig, err)
	}
	if len(config.CertData) == 0 {
		return skipped(c.ManagerKubeconfig + " has no client certificate"), nil
	}
	certificates, err := cert.ParseCertsPEM(config.CertData)
	if err != nil {
		return answer{}, fmt.Errorf("the client certificate of %s: %w", c.ManagerKubeconfig, err)
	}
	if problem := ending(certificates[0], c.Clock.Now(), identityPart); problem != "" {
		return answer{Findings: []finding{found("client-certificate-ends", "the client certificate of "+c.ManagerKubeconfig+" "+problem,
			"the log of the container identity says why it does not renew it: "+
				"kubectl -n kube-system logs -l component=sa-controller-manager -c identity"+c.Kubeconfig+
				"; on the node, sa-controller-manager kubeadm kubeconfig renews it")}}, nil
	}
	return answer{Note: "expires at " + certificates[0].NotAfter.UTC().Format(time.RFC3339)}, nil
}
