// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// Objects of the root CA publisher.
const (
	RootCAName  = "kube-root-ca.crt"
	RootCAState = "sa-controller-manager-root-ca"
)

// AwaitRootCA returns kube-root-ca.crt of a namespace once it holds one of the bundles.
func (c *ControlPlane) AwaitRootCA(t *testing.T, namespace string, bundles ...string) *corev1.ConfigMap {
	t.Helper()
	return c.AwaitConfigMap(t, namespace, RootCAName, func(configMap *corev1.ConfigMap) error {
		if got := configMap.Data["ca.crt"]; !slices.Contains(bundles, got) {
			return fmt.Errorf("it holds %d certificates in %d bytes, want %d in %d", strings.Count(got, "BEGIN"), len(got),
				strings.Count(bundles[0], "BEGIN"), len(bundles[0]))
		}
		return nil
	})
}
