// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kind

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/test/traffic"
)

// restartNode turns the control-plane node off and on. The webhook fails closed, and
// nobody is there to answer when the node begins to start its Pods.
func (c *cluster) restartNode(t *testing.T) {
	run(t, "docker", "stop", c.controlPlane())
	run(t, "docker", "start", c.controlPlane())
	begin := time.Now()
	// kube-apiserver is a Pod of that node: there is nothing to watch yet.
	poll(t, "kube-apiserver after the restart", func(ctx context.Context) error {
		return c.client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
	t.Logf("kube-apiserver is ready %v after the node was turned on", time.Since(begin).Round(100*time.Millisecond))
	namespace := c.namespace(t, "after-restart")
	c.awaitAdmission(t, namespace)
	t.Logf("a Pod is admitted %v after the node was turned on", time.Since(begin).Round(100*time.Millisecond))
	answers := c.answers(t, namespace, c.asker(t, on(c.controlPlane())))
	c.isAccount(t, answers["main"].Username, answers["main"].Groups, namespace)
	c.awaitPods(t, metav1.NamespaceSystem, allReady)
	t.Logf("all is ready %v after the node was turned on", time.Since(begin).Round(100*time.Millisecond))
}

// awaitAdmission returns once a Pod is admitted with all that it needs.
func (c *cluster) awaitAdmission(t *testing.T, namespace string) {
	t.Helper()
	poll(t, "that Pods are admitted", func(ctx context.Context) error {
		pod, err := c.client.CoreV1().Pods(namespace).Create(ctx, homeless(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			err = traffic.Complete(pod)
		}
		return err
	})
}
