// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"

	"sa-controller-manager/controllers/informers"
	"sa-controller-manager/internal/check"
	"sa-controller-manager/internal/paging"
)

const (
	seeLeader = "see the log of the leader, which kubectl get leases -A{flags} names"
	configMap = "ConfigMap " + informers.RootCAName

	// NoRootCA is the code of the finding that a namespace has no root CA.
	NoRootCA = "no-root-ca"
)

var (
	missing = check.Fact{
		Code: NoRootCA, Message: "namespaces without a root CA in the " + configMap, Cost: "Pods do not start there",
		Remedy: "the publisher, here or in kube-controller-manager, creates it within seconds: " + seeLeader,
	}
	differs = check.Fact{
		Code: "root-ca-differs", Message: "namespaces whose " + configMap + " differs from {source}",
		Cost:   "Pods there trust another kube-apiserver",
		Remedy: "the publisher repairs it within seconds: check that all replicas have the same --root-ca-file, and " + seeLeader,
	}
	bundleForeign = check.Fact{
		Code: "trust-bundle-foreign", Message: "no publisher has written this ClusterTrustBundle of " + ServingSigner,
		Cost: "Pods trust it", Remedy: "delete it if you do not know it",
	}
	bundleDiffers = check.Fact{
		Code: "trust-bundle-differs", Message: "no ClusterTrustBundle of " + ServingSigner + " has the same root CA as {source}",
		Cost: "Pods that project it do not trust kube-apiserver, or do not start",
		Remedy: "if kube-controller-manager has written it, run sa-controller-manager kubeadm takeover on each node of the control " +
			"plane: only one publisher may run; else see /readyz?verbose, and " + seeLeader,
	}
)

// Certificates are those of a bundle, by digest. The same ones in another order, or with comments, are the same.
type Certificates = sets.Set[[sha256.Size]byte]

// CertificatesOf counts text without a certificate as one more certificate, so that two different unreadable texts differ.
func CertificatesOf(pem string) Certificates {
	all := Certificates{}
	certificates, err := cert.ParseCertsPEM([]byte(pem))
	if err != nil && pem != "" {
		return all.Insert(sha256.Sum256([]byte(pem)))
	}
	for _, certificate := range certificates {
		all.Insert(sha256.Sum256(certificate.Raw))
	}
	return all
}

// Published are the root CAs of the namespaces, and what they must be: all of least and nothing beyond most, because
// while a root CA changes, both the previous and the new one are published. Source says of what that is the content.
type Published struct {
	Source      string
	byNamespace map[string]Certificates
	least, most Certificates
}

// ReadPublished compares with file and the overlap or, if file is nil, with what kube-system has.
func ReadPublished(ctx context.Context, client kubernetes.Interface, file *Bundle) (*Published, error) {
	all := map[string]Certificates{}
	options := metav1.ListOptions{FieldSelector: "metadata.name=" + informers.RootCAName}
	list := client.CoreV1().ConfigMaps(metav1.NamespaceAll).List
	err := paging.Each(ctx, "ConfigMaps "+informers.RootCAName, list, options, func(page *corev1.ConfigMapList) error {
		for i := range page.Items {
			if one := &page.Items[i]; one.Name == informers.RootCAName {
				all[one.Namespace] = CertificatesOf(one.Data[informers.RootCAKey])
			}
		}
		return nil
	})
	one := all[metav1.NamespaceSystem]
	p := &Published{Source: "that of " + metav1.NamespaceSystem, byNamespace: all, least: one, most: one}
	if err != nil || file == nil {
		return p, err
	}
	p.Source, p.least = "--root-ca-file", CertificatesOf(string(file.PEM()))
	p.most = p.least
	state, err := client.CoreV1().Secrets(StateNamespace).Get(ctx, StateName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return p, nil
	} else if err != nil {
		return p, fmt.Errorf("read the Secret %s/%s: %w", StateNamespace, StateName, err)
	}
	for key, text := range state.Data {
		if strings.HasSuffix(key, ".crt") {
			p.most = p.most.Union(CertificatesOf(string(text)))
		}
	}
	return p, nil
}

// Strange reports whether a copy of the root CA is another one. Nothing is strange while none is known.
func (p *Published) Strange(copied Certificates) bool {
	return len(copied) > 0 && len(p.least) > 0 && !p.fits(copied)
}

func (p *Published) fits(c Certificates) bool { return c.IsSuperset(p.least) && p.most.IsSuperset(c) }

// Findings returns what is wrong in namespaces.
func (p *Published) Findings(namespaces []string) []check.Finding {
	var bare, others []string
	for _, namespace := range namespaces {
		switch has := p.byNamespace[namespace]; {
		case len(has) == 0:
			bare = append(bare, namespace)
		case !p.fits(has):
			others = append(others, namespace)
		}
	}
	return append(missing.Found().About(bare), differs.Found("{source}", p.Source).About(others)...)
}

// TrustBundles finds out whether the ClusterTrustBundle has the root CA of the namespaces. A second publisher replaces it
// by its own.
func (p *Published) TrustBundles(ctx context.Context, client kubernetes.Interface) (check.Result, error) {
	var options metav1.ListOptions
	SelectServingSigner(&options)
	bundles, err := client.CertificatesV1().ClusterTrustBundles().List(ctx, options)
	if apierrors.IsNotFound(err) {
		return check.Skip("kube-apiserver does not serve ClusterTrustBundles in v1"), nil
	} else if err != nil {
		return check.Result{}, fmt.Errorf("list ClusterTrustBundles: %w", err)
	}
	right := false
	var all, foreign []string
	for i := range bundles.Items {
		one := &bundles.Items[i]
		all = append(all, DescribeTrustBundle(one))
		right = right || p.most.Equal(CertificatesOf(one.Spec.TrustBundle))
		if !PublishedTrustBundle(one) {
			foreign = append(foreign, all[i])
		}
	}
	note := fmt.Sprintf("bundles: %d, compared with %s", len(all), p.Source)
	found := check.Result{Findings: bundleForeign.Found().About(foreign), Note: note}
	if !right {
		wrong := bundleDiffers.Found("{source}", p.Source)
		wrong.Objects = all
		found.Findings = append(found.Findings, wrong)
	}
	return found, nil
}
