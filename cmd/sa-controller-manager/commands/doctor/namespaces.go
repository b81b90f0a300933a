// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/controllers/informers"
	"sa-controller-manager/internal/paging"
)

// fixAbsent and fixRootCA are followed by a command that says who leads.
const (
	fixAbsent = "the controllers create it within seconds, here or in kube-controller-manager: see the log of the leader, "
	fixRootCA = "the root CA publisher repairs it within seconds: check that all replicas have the same --root-ca-file, " +
		"and see the log of the leader, "
)

// leaders returns a command that names the holders of Leases.
func (c *cluster) leaders() string {
	return "kubectl --namespace=" + c.LeaseNamespace + " get leases" + c.Kubeconfig
}

// checkNamespaces finds namespaces without the default account or the right root CA.
func checkNamespaces(ctx context.Context, c *cluster) (answer, error) {
	namespaces, err := c.activeNamespaces(ctx)
	if err != nil {
		return answer{}, err
	}
	if len(namespaces) == 0 {
		return skipped(fmt.Sprintf("no namespaces older than %s", c.Grace)), nil
	}
	accounts, err := c.accountUIDs(ctx)
	if err != nil {
		return answer{}, err
	}
	rootCAs, err := c.rootCAs(ctx)
	if err != nil {
		return answer{}, err
	}
	wanted := rootCAs.wanted
	var noAccount, noRootCA, drifted []string
	for _, namespace := range namespaces {
		if _, has := accounts[cache.NewObjectName(namespace, "default")]; !has {
			noAccount = append(noAccount, namespace)
		}
		switch published := rootCAs.published[namespace]; {
		case len(published) == 0:
			noRootCA = append(noRootCA, namespace)
		case !wanted.fits(published):
			drifted = append(drifted, namespace)
		}
	}
	findings := slices.Concat(
		about(noAccount, "no-default-account", "namespaces without the account default: no Pod can be created there", fixAbsent+c.leaders()),
		about(noRootCA, "no-root-ca", "namespaces without a root CA in the ConfigMap "+informers.RootCAName+": Pods do not start there",
			fixAbsent+c.leaders()),
		about(drifted, "root-ca-differs", fmt.Sprintf("namespaces whose ConfigMap %s differs from %s", informers.RootCAName, wanted.source),
			fixRootCA+c.leaders()))
	return answer{Findings: findings, Note: fmt.Sprintf("namespaces: %d, compared with %s", len(namespaces), wanted.source)}, nil
}

// activeNamespaces returns the namespaces that are older than the grace period.
func (c *cluster) activeNamespaces(ctx context.Context) ([]string, error) {
	var names []string
	err := paging.Each(ctx, "namespaces", c.Client.CoreV1().Namespaces().List, metav1.ListOptions{}, func(page *corev1.NamespaceList) error {
		for i := range page.Items {
			if namespace := &page.Items[i]; c.settled(namespace.ObjectMeta) {
				names = append(names, namespace.Name)
			}
		}
		return nil
	})
	return names, err
}
