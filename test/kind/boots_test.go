// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kind

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/await"
)

// delay is how long the process is not there in a boot that misses it. It is time that
// passes on purpose.
const delay = 20 * time.Second

// TestBoots boots clusters in which there is nobody else to make ServiceAccounts, tokens and root CAs from
// the first second on. One has its node turned off and on, the other has to do without our process for a while.
func TestBoots(t *testing.T) {
	t.Run("Restarted", func(t *testing.T) {
		c := boots(t)
		if c.minor(t) >= 37 { // kube-apiserver reads our webhook from files
			c.undeletable(t, "undeletable")
		}
		c.restartNode(t)
	})
	t.Run("Delayed", bootsLate)
}

// boots holds a boot to what anybody expects of a cluster.
func boots(t *testing.T) *cluster {
	t.Helper()
	begin := time.Now()
	c := create(t, ours(t, true))
	t.Logf("the node is ready %v after the command", time.Since(begin).Round(100*time.Millisecond))
	pods := c.awaitPods(t, metav1.NamespaceSystem, allReady)
	t.Logf("%d Pods are ready %v after the command", len(pods), time.Since(begin).Round(100*time.Millisecond))
	for _, pod := range pods {
		n := restarts(pod)
		testutil.Expect(t, n <= 0, "%s has restarted %d times", pod.Name, n)
	}
	events := testutil.Get(c.client.CoreV1().Events("").List(t.Context(), metav1.ListOptions{}))(t)
	for _, event := range events.Items {
		testutil.Expect(t, !strings.Contains(event.Message, "the Pod has no ServiceAccount"), "the policy for Pods has refused one: %s",
			event.Message)
	}
	namespace := c.namespace(t, "first")
	answers := c.answers(t, namespace, c.asker(t))
	c.isAccount(t, answers["main"].Username, answers["main"].Groups, namespace)
	missed := c.missed(t)
	testutil.Expect(t, len(missed) <= 0, "Pods were admitted without us: %v", missed)
	return c
}

// bootsLate covers Pods that are admitted while our process is not there. They do not
// heal by themselves, but their controllers create them again.
func bootsLate(t *testing.T) {
	c := create(t, ours(t, false))
	await.Sleep(t.Context(), delay)
	c.writeManifest(t, "sa-controller-manager", c.onNode(t, "cat", staticPodSource))
	c.awaitAdmission(t, metav1.NamespaceDefault)
	missed := c.missed(t)
	testutil.Expect(t, len(missed) != 0, "no Pod was found that was admitted without us")
	old := map[types.UID]bool{}
	for _, pod := range missed {
		t.Logf("admitted without us: %s/%s", pod.Namespace, pod.Name)
		old[pod.UID] = true
		testutil.Must(t, c.client.CoreV1().Pods(pod.Namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}))
	}
	c.awaitPods(t, "", func(pods []*corev1.Pod) error {
		for _, pod := range pods {
			if old[pod.UID] {
				return fmt.Errorf("%s/%s is still there", pod.Namespace, pod.Name)
			}
		}
		return allReady(pods)
	})
	if missed := c.missed(t); len(missed) > 0 {
		t.Errorf("after their deletion there are still Pods that were admitted without us: %v", missed)
	}
}

// missed returns the Pods of which no container mounts a token, though they want one.
func (c *cluster) missed(t *testing.T) (missed []*corev1.Pod) {
	t.Helper()
	for _, pod := range c.awaitPods(t, "", func([]*corev1.Pod) error { return nil }) {
		_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
		wants := !mirror && (pod.Spec.AutomountServiceAccountToken == nil || *pod.Spec.AutomountServiceAccountToken)
		if wants && !slices.ContainsFunc(pod.Spec.Containers, mountsToken) {
			missed = append(missed, pod)
		}
	}
	return missed
}

func mountsToken(c corev1.Container) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
		return m.MountPath == "/var/run/secrets/kubernetes.io/serviceaccount"
	})
}
