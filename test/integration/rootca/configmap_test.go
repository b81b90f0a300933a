// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/test/integration/testcluster"
)

const publisherAlone = "--controllers=root-ca-cert-publisher"

// TestRootCAConfigMaps covers what others do to them: every Active namespace has the ConfigMap, and
// each change by another client is undone once.
func TestRootCAConfigMaps(t *testing.T) {
	c := withOwnRootCAs(t)
	bundle := c.RootCA(t)
	m := c.Manage(t, publisherAlone)
	namespace := c.Namespace(t)
	right := c.AwaitRootCA(t, namespace, bundle)
	c.AwaitRootCA(t, metav1.NamespaceSystem, bundle)

	t.Run("Edited", func(t *testing.T) {
		namespace := c.Namespace(t) // repairs are limited per ConfigMap
		c.AwaitRootCA(t, namespace, bundle)
		edited := patchRootCA(t, c, namespace,
			`{"metadata":{"labels":{"kept":"yes"},"annotations":null},"data":{"ca.crt":"mine"},"binaryData":{"more":"AAAA"}}`)
		got := c.AwaitConfigMap(t, namespace, testcluster.RootCAName, func(configMap *corev1.ConfigMap) error {
			if diff := cmp.Diff(right.Data, configMap.Data); diff != "" {
				return fmt.Errorf("data is wrong")
			}
			if configMap.Annotations["kubernetes.io/description"] != right.Annotations["kubernetes.io/description"] {
				return fmt.Errorf("the annotation is wrong")
			}
			if len(configMap.BinaryData) > 0 {
				return fmt.Errorf("there is binary data")
			}
			return nil
		})
		if got.Labels["kept"] == "" || len(got.ManagedFields) == 0 || got.UID != edited.UID {
			t.Errorf("the repair has dropped a label or the managed fields, or replaced it: %v", got)
		}
		m.WaitIdle(t)
		if after := c.AwaitRootCA(t, namespace, bundle); after.ResourceVersion != got.ResourceVersion {
			t.Error("it was written again after the repair")
		}
	})
}

func deleteConfigMap(t *testing.T, c *testcluster.ControlPlane, namespace string) {
	t.Helper()
	if err := c.API.CoreV1().ConfigMaps(namespace).Delete(t.Context(), testcluster.RootCAName, metav1.DeleteOptions{}); err != nil {
		t.Fatalf("delete configmap %s/%s: %v", namespace, testcluster.RootCAName, err)
	}
}

// TestRootCASameAsKubeControllerManager compares the objects.
func TestRootCASameAsKubeControllerManager(t *testing.T) {
	c := withOwnRootCAs(t)
	kcm := c.StartKCM(t, publisherAlone)
	namespace := c.Namespace(t)
	theirs := c.AwaitRootCA(t, namespace, c.RootCA(t))
	testcluster.StopKCM(t, kcm)
	m := c.Manage(t, publisherAlone)
	m.WaitIdle(t)
	if kept := c.AwaitRootCA(t, namespace, c.RootCA(t)); kept.ResourceVersion != theirs.ResourceVersion {
		t.Error("what kube-controller-manager has made is written again")
	}
	deleteConfigMap(t, c, namespace)
	ours := c.AwaitConfigMap(t, namespace, testcluster.RootCAName, func(configMap *corev1.ConfigMap) error {
		if configMap.UID == theirs.UID {
			return fmt.Errorf("it is theirs")
		}
		return nil
	})
	for _, configMap := range []*corev1.ConfigMap{theirs, ours} {
		configMap.UID, configMap.ResourceVersion, configMap.CreationTimestamp, configMap.ManagedFields = "", "", metav1.Time{}, nil
	}
	if diff := cmp.Diff(theirs, ours); diff != "" {
		t.Errorf("ConfigMap (-theirs +ours):\n%s", diff)
	}
}
