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
	mendAbsent = "one controller of each kind has to run, here or in kube-controller-manager: see which one leads (--only=leader) and what its log says"
	mendRootCA = "the root CA publisher repairs it within seconds: see why it does not run (--only=leader), and that --root-ca-file is the same for all who publish"
)

// checkNamespaces finds namespaces that a controller has not seen to.
func checkNamespaces(ctx context.Context, c *Cluster) (Answer, error) {
	namespaces, err := c.activeNamespaces(ctx)
	if err != nil {
		return Answer{}, err
	}
	accounts, err := c.accountUIDs(ctx)
	if err != nil {
		return Answer{}, err
	}
	rootCAs, err := c.rootCAs(ctx)
	if err != nil {
		return Answer{}, err
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
	var findings []Finding
	if len(noAccount) > 0 {
		findings = append(findings, found(count(len(noAccount), "namespace has", "namespaces have")+" no account default: no Pod can be created there", mendAbsent, noAccount...))
	}
	if len(noRootCA) > 0 {
		findings = append(findings, found(count(len(noRootCA), "namespace has", "namespaces have")+" no root CA in the ConfigMap "+informers.RootCAName+": Pods do not start there", mendAbsent, noRootCA...))
	}
	if len(drifted) > 0 {
		findings = append(findings, found(fmt.Sprintf("the ConfigMap %s differs from %s in %s", informers.RootCAName, wanted.source, count(len(drifted), "namespace", "namespaces")), mendRootCA, drifted...))
	}
	return Answer{Findings: findings, Note: count(len(namespaces), "namespace", "namespaces") + " old enough compared with " + wanted.source}, nil
}

// activeNamespaces are those that are old enough to have everything.
func (c *Cluster) activeNamespaces(ctx context.Context) ([]string, error) {
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
