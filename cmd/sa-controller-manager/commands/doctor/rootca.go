// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/cert"

	"sa-controller-manager/controllers/informers"
	"sa-controller-manager/controllers/rootca"
	"sa-controller-manager/internal/check"
	"sa-controller-manager/internal/paging"
)

var (
	bundleForeign = check.Fact{
		Code: "trust-bundle-foreign", Message: "no publisher has written this ClusterTrustBundle of " + rootca.ServingSigner,
		Cost: "Pods trust it", Remedy: "delete it if you do not know it",
	}
	bundleDiffers = check.Fact{
		Code: "trust-bundle-differs", Message: "no ClusterTrustBundle of " + rootca.ServingSigner + " has the same root CA as {source}",
		Cost: "Pods that project it do not trust kube-apiserver, or do not start",
		Remedy: "if kube-controller-manager has written it, run sa-controller-manager kubeadm takeover on each node of the control plane: only " +
			"one publisher may run; else see /readyz?verbose and the log of the leader, {leaders}",
	}
)

// wantedRootCA is what a published bundle is compared with. It fits if it has all of least and
// nothing beyond most: while a root CA changes, both the previous and the new one are published.
type wantedRootCA struct {
	least, most bundle
	source      string
}

func (w wantedRootCA) fits(b bundle) bool { return b.IsSuperset(w.least) && w.most.IsSuperset(b) }

// rootCAs are the published bundles by namespace, and what they must be.
type rootCAs struct {
	published map[string]bundle
	wanted    wantedRootCA
}

func (c *cluster) rootCAs(ctx context.Context) (*rootCAs, error) {
	return c.facts.rootCAs.get(ctx, func(ctx context.Context) (*rootCAs, error) {
		all := &rootCAs{published: map[string]bundle{}}
		list := c.Client.CoreV1().ConfigMaps(metav1.NamespaceAll).List
		options := metav1.ListOptions{FieldSelector: "metadata.name=" + informers.RootCAName}
		err := paging.Each(ctx, "ConfigMaps "+informers.RootCAName, list, options, func(page *corev1.ConfigMapList) error {
			for i := range page.Items {
				if configMap := &page.Items[i]; configMap.Name == informers.RootCAName {
					all.published[configMap.Namespace] = parseBundle(configMap.Data[informers.RootCAKey])
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		one := all.published[metav1.NamespaceSystem]
		all.wanted = wantedRootCA{one, one, "that of " + metav1.NamespaceSystem}
		if c.RootCA != nil {
			overlap, err := c.overlap(ctx)
			if err != nil {
				return nil, err
			}
			file := parseBundle(string(c.RootCA.PEM()))
			all.wanted = wantedRootCA{file, file.Union(overlap), "--root-ca-file"}
		}
		return all, nil
	})
}

// overlap returns the certificates of the overlap that the root CA publisher has recorded.
func (c *cluster) overlap(ctx context.Context) (bundle, error) {
	secret, err := c.Client.CoreV1().Secrets(rootca.StateNamespace).Get(ctx, rootca.StateName, metav1.GetOptions{})
	state, err := existing(secret, err, "Secret "+rootca.StateNamespace+"/"+rootca.StateName)
	if state == nil || err != nil {
		return nil, err
	}
	all := bundle{}
	for key, text := range state.Data {
		if strings.HasSuffix(key, ".crt") {
			all = all.Union(parseBundle(string(text)))
		}
	}
	return all, nil
}

// checkTrustBundle finds out whether the ClusterTrustBundle has the root CA of the namespaces. A second publisher
// replaces it by its own.
func (c *cluster) checkTrustBundle(ctx context.Context) (found check.Result, err error) {
	var options metav1.ListOptions
	rootca.SelectServingSigner(&options)
	bundles, err := c.Client.CertificatesV1().ClusterTrustBundles().List(ctx, options)
	if apierrors.IsNotFound(err) {
		return check.Skip("kube-apiserver does not serve ClusterTrustBundles in v1"), nil
	}
	if err != nil {
		return found, fmt.Errorf("list ClusterTrustBundles: %w", err)
	}
	rootCAs, err := c.rootCAs(ctx)
	if err != nil {
		return found, err
	}
	right := false
	var all, foreign []string
	for i := range bundles.Items {
		one := &bundles.Items[i]
		all = append(all, rootca.DescribeTrustBundle(one))
		right = right || rootCAs.wanted.most.Equal(parseBundle(one.Spec.TrustBundle))
		if !rootca.PublishedTrustBundle(one) {
			foreign = append(foreign, all[i])
		}
	}
	found.Note = fmt.Sprintf("bundles: %d, compared with %s", len(all), rootCAs.wanted.source)
	found.Findings = bundleForeign.Found().About(foreign)
	if !right {
		finding := bundleDiffers.Found("{source}", rootCAs.wanted.source, "{leaders}", c.leaders())
		finding.Objects = all
		found.Findings = append(found.Findings, finding)
	}
	return found, nil
}

// bundle is a set of certificates, by digest. The same certificates in another order, or with
// comments, are the same bundle.
type bundle = sets.Set[[sha256.Size]byte]

// parseBundle takes text that holds no certificate for a bundle of its own, so that two
// different unreadable texts differ.
func parseBundle(pem string) bundle {
	certificates, err := cert.ParseCertsPEM([]byte(pem))
	if err != nil && pem != "" {
		return sets.New(sha256.Sum256([]byte(pem)))
	}
	all := bundle{}
	for _, certificate := range certificates {
		all.Insert(sha256.Sum256(certificate.Raw))
	}
	return all
}
