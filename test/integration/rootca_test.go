// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/integration/testcluster"
)

const (
	publisherAlone = "--controllers=root-ca-cert-publisher"
	rootCAName     = "kube-root-ca.crt"
)

// TestRootCASameAsKubeControllerManager compares the objects.
func TestRootCASameAsKubeControllerManager(t *testing.T) {
	c := testcluster.Shared(t)
	kcm := c.StartKCM(t, publisherAlone)
	namespace := c.Namespace(t)
	published := func(configMap *corev1.ConfigMap) error {
		if configMap.Data["ca.crt"] != c.RootCA(t) {
			return errors.New("it does not hold the root CA")
		}
		return nil
	}
	theirs := c.AwaitConfigMap(t, namespace, rootCAName, published)
	testcluster.StopKCM(t, kcm)
	m := c.Manage(t, publisherAlone)
	m.WaitIdle(t)
	if kept := c.AwaitConfigMap(t, namespace, rootCAName, published); kept.ResourceVersion != theirs.ResourceVersion {
		t.Error("what kube-controller-manager has made is written again")
	}
	testutil.Must(t, c.API.CoreV1().ConfigMaps(namespace).Delete(t.Context(), rootCAName, metav1.DeleteOptions{}))
	ours := c.AwaitConfigMap(t, namespace, rootCAName, func(configMap *corev1.ConfigMap) error {
		if configMap.UID == theirs.UID {
			return errors.New("it is theirs")
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
