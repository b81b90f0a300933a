// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"

	"sa-controller-manager/internal/paging"
)

const (
	kmsSigner    = "sa-kms-signer"
	needsCluster = "backend-needs-cluster"
	fixColdStart = "have it outside of this cluster, or in a static pod, with credentials of another kind (docs/backends.md)"
)

// coldStart finds what signs the tokens of this cluster and cannot without it: an OpenBao or Vault in the
// cluster, as the files in --kms-signer-keys-dir name it, and credentials that are such a token.
func (c *cluster) coldStart(ctx context.Context) (findings []finding, err error) {
	if c.SignerKeys == "" && len(c.Remote) == 0 {
		return nil, nil
	}
	inside := sets.New[string]() // addresses
	err = paging.Each(ctx, "Pods", c.Client.CoreV1().Pods(metav1.NamespaceAll).List, metav1.ListOptions{}, func(page *corev1.PodList) error {
		for i := range page.Items {
			pod := &page.Items[i]
			if !pod.Spec.HostNetwork {
				inside.Insert(pod.Status.PodIP)
			}
			if volume := ownToken(&pod.Spec); volume != "" {
				findings = append(findings, found(needsCluster, "this Pod of "+kmsSigner+" does not start without the token in its volume "+volume+", which it has to sign", fixColdStart, pod.Namespace+"/"+pod.Name))
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = paging.Each(ctx, "Services", c.Client.CoreV1().Services(metav1.NamespaceAll).List, metav1.ListOptions{}, func(page *corev1.ServiceList) error {
		for i := range page.Items {
			inside.Insert(append(page.Items[i].Spec.ClusterIPs, page.Items[i].Spec.ExternalIPs...)...)
			for _, ingress := range page.Items[i].Status.LoadBalancer.Ingress {
				inside.Insert(ingress.IP)
			}
		}
		return nil
	})
	if err != nil || c.SignerKeys == "" {
		return findings, err
	}
	files, _ := filepath.Glob(filepath.Join(c.SignerKeys, "*.yaml")) // the pattern is a good one
	for _, file := range files {
		host, failed := backendHost(file)
		if failed != nil {
			return nil, fmt.Errorf("--kms-signer-keys-dir: %w", failed)
		}
		if host != "" && (strings.Contains(host+".", ".svc.") || slices.ContainsFunc(addresses(ctx, host), inside.Has)) {
			findings = append(findings, found(needsCluster, host+" is in this cluster, whose Pods need the tokens that it signs", fixColdStart, filepath.Base(file)))
		}
	}
	return findings, nil
}

// ownToken returns the volume from which sa-kms-signer has a token of the cluster, such as one for cloud
// credentials; "" if the Pod does not run it or it has none.
func ownToken(pod *corev1.PodSpec) string {
	tokens := map[string]bool{} // by volume
	for _, volume := range pod.Volumes {
		tokens[volume.Name] = volume.Projected != nil && slices.ContainsFunc(volume.Projected.Sources, func(s corev1.VolumeProjection) bool { return s.ServiceAccountToken != nil })
	}
	for _, container := range pod.Containers {
		if name, _, _ := strings.Cut(path.Base(container.Image), ":"); name != kmsSigner && (len(container.Command) == 0 || path.Base(container.Command[0]) != kmsSigner) {
			continue
		}
		for _, mount := range container.VolumeMounts {
			if tokens[mount.Name] {
				return mount.Name
			}
		}
	}
	return ""
}

// backendHost returns the host of the address in a key file of sa-kms-signer, "" if it has none.
func backendHost(file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err // it names the path
	}
	var spec struct {
		URI string `json:"uri"`
	}
	if err := yaml.Unmarshal(data, &spec); err != nil {
		return "", fmt.Errorf("%s is not a key file of %s", file, kmsSigner)
	}
	_, query, _ := strings.Cut(spec.URI, "?")
	values, _ := url.ParseQuery(query) // what it cannot read, sa-kms-signer refuses
	address, err := url.Parse(values.Get("address"))
	if err != nil {
		return "", nil //nolint:nilerr // likewise
	}
	return address.Hostname(), nil
}

// addresses returns the IP addresses of a host, as far as they are known here.
func addresses(ctx context.Context, host string) []string {
	if net.ParseIP(host) != nil {
		return []string{host}
	}
	found, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return nil // it may be known on the host of the signer alone
	}
	return found
}
