// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/internal/testutil"
)

const accountTemplate = `
schemaVersion: 1
rules:
- automountServiceAccountToken: false
- namespaces: [template-mirror-*]
  accounts: [default]
  imagePullSecrets: [{name: by-name}]
- namespaceSelector:
    matchLabels: {mounts: "yes"}
  automountServiceAccountToken: true
  imagePullSecrets: [{name: by-label}]
`

// TestAccountTemplate creates namespaces of four kinds, each together with a Pod: the first Pod of a namespace
// has what the template gives to its account, whether the webhook or the controller was the first.
func TestAccountTemplate(t *testing.T) {
	c := controlPlane(t)
	c.manage(t, "--account-template="+testutil.WriteFile(t, "template.yaml", []byte(accountTemplate)))
	count := 1000
	if testing.Short() {
		count = 200
	}
	next := make(chan int)
	var working sync.WaitGroup
	for range 8 {
		working.Go(func() {
			for i := range next {
				if err := c.firstPod(t.Context(), i%2 == 0, i/2%2 == 0); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range count {
		next <- i
	}
	close(next)
	working.Wait()
}

func (c *cluster) firstPod(ctx context.Context, named, labelled bool) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "template-plain-"}}
	var want []corev1.LocalObjectReference
	if named {
		namespace.GenerateName = "template-mirror-"
		want = append(want, corev1.LocalObjectReference{Name: "by-name"})
	}
	if labelled {
		namespace.Labels = map[string]string{"mounts": "yes"}
		want = append(want, corev1.LocalObjectReference{Name: "by-label"})
	}
	namespace, err := c.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create a namespace: %w", err)
	}
	pod, err := c.client.CoreV1().Pods(namespace.Name).Create(ctx, newPod(), metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create a Pod in namespace %s: %w", namespace.Name, err)
	}
	if diff := cmp.Diff(want, pod.Spec.ImagePullSecrets); diff != "" {
		return fmt.Errorf("pull secrets of the Pod in namespace %s (-want +got):\n%s", namespace.Name, diff)
	}
	if mounts := len(pod.Spec.Containers[0].VolumeMounts) > 0; mounts != labelled {
		return fmt.Errorf("the Pod in namespace %s mounts a token: %t, want %t", namespace.Name, mounts, labelled)
	}
	return nil
}
