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
	"sa-controller-manager/internal/paging"
)

// fixTrustBundle is followed by a command that says who leads.
const fixTrustBundle = "if kube-controller-manager has written it, run sa-controller-manager kubeadm takeover on each node of the " +
	"control plane: only one publisher may run; else see /readyz?verbose and the log of the leader, "

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
	return c.read.rootCAs.get(ctx, func(ctx context.Context) (*rootCAs, error) {
		published, err := c.publishedRootCAs(ctx)
		if err != nil {
			return nil, err
		}
		wanted, err := c.wantedRootCA(ctx, published)
		return &rootCAs{published, wanted}, err
	})
}

func (c *cluster) publishedRootCAs(ctx context.Context) (map[string]bundle, error) {
	published := map[string]bundle{}
	list := c.Client.CoreV1().ConfigMaps(metav1.NamespaceAll).List
	options := metav1.ListOptions{FieldSelector: "metadata.name=" + informers.RootCAName}
	err := paging.Each(ctx, "ConfigMaps "+informers.RootCAName, list, options, func(page *corev1.ConfigMapList) error {
		for i := range page.Items {
			if configMap := &page.Items[i]; configMap.Name == informers.RootCAName {
				published[configMap.Namespace] = parseBundle(configMap.Data[informers.RootCAKey])
			}
		}
		return nil
	})
	return published, err
}

func (c *cluster) wantedRootCA(ctx context.Context, published map[string]bundle) (wantedRootCA, error) {
	if c.RootCA == nil {
		one := published[metav1.NamespaceSystem]
		return wantedRootCA{one, one, "that of " + metav1.NamespaceSystem}, nil
	}
	overlap, err := c.overlap(ctx)
	if err != nil {
		return wantedRootCA{}, err
	}
	file := parseBundle(string(c.RootCA.PEM()))
	return wantedRootCA{file, file.Union(overlap), "--root-ca-file"}, nil
}

// checkTrustBundle finds out whether the ClusterTrustBundle has the root CA of the namespaces. A second publisher
// replaces it by its own.
func checkTrustBundle(ctx context.Context, c *cluster) (answer, error) {
	var options metav1.ListOptions
	rootca.SelectServingSigner(&options)
	bundles, err := c.Client.CertificatesV1().ClusterTrustBundles().List(ctx, options)
	if apierrors.IsNotFound(err) {
		return skipped("kube-apiserver does not serve ClusterTrustBundles in v1"), nil
	}
	if err != nil {
		return answer{}, fmt.Errorf("list ClusterTrustBundles: %w", err)
	}
	rootCAs, err := c.rootCAs(ctx)
	if err != nil {
		return answer{}, err
	}
	right := false
	var all []string
	answer := answer{Note: fmt.Sprintf("bundles: %d, compared with %s", len(bundles.Items), rootCAs.wanted.source)}
	for i := range bundles.Items {
		one := &bundles.Items[i]
		all = append(all, rootca.DescribeTrustBundle(one))
		right = right || rootCAs.wanted.most.Equal(parseBundle(one.Spec.TrustBundle))
		if !rootca.PublishedTrustBundle(one) {
			answer.Findings = append(answer.Findings, found("trust-bundle-foreign", "no publisher has written this ClusterTrustBundle of "+
				rootca.ServingSigner+", and Pods trust it", "delete it if you do not know it", all[i]))
		}
	}
	if !right {
		problem := "no ClusterTrustBundle of " + rootca.ServingSigner + " has the same root CA as " + rootCAs.wanted.source
		answer.Findings = append(answer.Findings, found("trust-bundle-differs", problem, fixTrustBundle+c.leaders(), all...))
	}
	return answer, nil
}

// overlap returns the certificates of the overlap that the root CA publisher has recorded.
func (c *cluster) overlap(ctx context.Context) (bundle, error) {
	state, err := c.Client.CoreV1().Secrets(rootca.StateNamespace).Get(ctx, rootca.StateName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the Secret %s/%s: %w", rootca.StateNamespace, rootca.StateName, err)
	}
	all := bundle{}
	for key, text := range state.Data {
		if strings.HasSuffix(key, ".crt") {
			all = all.Union(parseBundle(string(text)))
		}
	}
	return all, nil
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
