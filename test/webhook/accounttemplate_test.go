// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/test/devcluster"
)

const accountTemplate = `
schemaVersion: 1
rules:
- automountServiceAccountToken: false
  labels: {version: "%d"}
- namespaces: [template-mirror-*]
  accounts: [default]
  imagePullSecrets: [{name: by-name}]
- namespaceSelector:
    matchLabels: {mounts: "yes"}
  automountServiceAccountToken: true
  imagePullSecrets: [{name: by-label}]
`

// TestAccountTemplate creates namespaces, each together with a Pod: the first Pod of a namespace has
// what the template gives to its account, whether the webhook or the controller was the first.
func TestAccountTemplate(t *testing.T) {
	c := controlPlane(t)
	file := filepath.Join(t.TempDir(), "template.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(fmt.Sprintf(accountTemplate, 1))
	m := c.manage(t, "--account-template="+file)
	t.Run("FirstPods", func(t *testing.T) {
		count := 1000
		if testing.Short() {
			count = 200
		}
		c.firstPods(t, count)
	})
	t.Run("Reload", func(t *testing.T) {
		version := func(want string) func(context.Context) error {
			return func(context.Context) error {
				pod := c.create(t, c.namespace(t), newPod())
				account, err := c.client.CoreV1().ServiceAccounts(pod.Namespace).Get(t.Context(), "default", metav1.GetOptions{})
				if err == nil && account.Labels["version"] != want {
					err = fmt.Errorf("a new account has the labels %v, want version %s", account.Labels, want)
				}
				return err
			}
		}
		write(fmt.Sprintf(accountTemplate, 2))
		poll(t, "await the changed template", version("2"))
		m.faulty = true
		write("schemaVersion: 1")
		refused := devcluster.Labels{"flag": "account-template"}
		poll(t, "await that an invalid one is refused", func(context.Context) error {
			if m.metric(t, "sacm_file_refused", refused) != 1 {
				return errors.New("the metric is 0")
			}
			return nil
		})
		if err := version("2")(t.Context()); err != nil {
			t.Errorf("after an invalid file: %v", err)
		}
	})
}

// firstPods creates namespaces of four kinds with a Pod in each.
func (c *cluster) firstPods(t *testing.T, count int) {
	t.Helper()
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
