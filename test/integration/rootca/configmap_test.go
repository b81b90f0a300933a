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
