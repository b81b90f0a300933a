// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/controllers/informers"
	"sa-controller-manager/internal/paging"
)

const (
	fixAbsent = "one controller of each kind has to run, here or in kube-controller-manager: see which one leads (--only=leader) and what its log says"
	fixRootCA = "the root CA publisher repairs it within seconds: see why it does not run (--only=leader), and that --root-ca-file is the same for all who publish"
)

// checkNamespaces finds namespaces that a controller has not seen to.
func checkNamespaces(ctx context.Context, c *cluster) (answer, error) {
	namespaces, err := c.activeNamespaces(ctx)
	if err != nil {
		return answer{}, err
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
		case published == "":
			noRootCA = append(noRootCA, namespace)
		case !wanted.fits(published):
			drifted = append(drifted, namespace)
		}
	}
	var findings []finding
	if len(noAccount) > 0 {
		findings = append(findings, found("no-default-account", "namespaces without the account default: no Pod can be created there", fixAbsent, noAccount...))
	}
	if len(noRootCA) > 0 {
		findings = append(findings, found("no-root-ca", "namespaces without a root CA in the ConfigMap "+informers.RootCAName+": Pods do not start there", fixAbsent, noRootCA...))
	}
	if len(drifted) > 0 {
		findings = append(findings, found("root-ca-differs", fmt.Sprintf("namespaces whose ConfigMap %s differs from %s", informers.RootCAName, wanted.source), fixRootCA, drifted...))
	}
	return answer{Findings: findings, Note: fmt.Sprintf("namespaces old enough: %d, compared with %s", len(namespaces), wanted.source)}, nil
}

// activeNamespaces are those that are old enough to have everything.
func (c *cluster) activeNamespaces(ctx context.Context) ([]string, error) {
	var names []string
	now := c.Clock.Now()
	err := paging.Each(ctx, "namespaces", c.Client.CoreV1().Namespaces().List, metav1.ListOptions{}, func(page *corev1.NamespaceList) error {
		for i := range page.Items {
			if namespace := &page.Items[i]; namespace.DeletionTimestamp == nil && now.Sub(namespace.CreationTimestamp.Time) > c.Grace {
				names = append(names, namespace.Name)
			}
		}
		return nil
	})
	return names, err
}
