// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kind

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/admission/podpolicy"
	"sa-controller-manager/admission/registration"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/await"
)

const ownManifest = "/etc/kubernetes/manifests/sa-controller-manager.yaml"

// withoutDeadUs takes over and breaks our process in several ways. Each time the handback
// restores the manifests, and the API accepts the tokens of new Pods.
func (c *cluster) withoutDeadUs(t *testing.T) {
	t.Helper()
	c.awaitPods(t, metav1.NamespaceSystem, allReady)
	before := c.controlPlaneManifests(t)
	for _, tc := range []struct {
		name     string
		breaks   func(*testing.T)
		upgraded bool // as docs/takeover.md says for a process that is dead
	}{
		{name: "manifest-removed", breaks: func(t *testing.T) { c.onNode(t, "rm", ownManifest) }},
		{name: "crash-looping", upgraded: true, breaks: func(t *testing.T) {
			// It ends at once, because it has no token.
			c.onNode(t, "sh", "-c", fmt.Sprintf("cp %s/apicheck %[2]s.new && mv %[2]s.new %[2]s", nodeBinaries, product))
			c.restartOurPod(t)
		}},
		{name: "binary-missing", breaks: func(t *testing.T) {
			c.onNode(t, "rm", product)
			c.rebootWithoutUs(t)
		}},
	} {
		whole := t.Run(tc.name, func(t *testing.T) {
			c.installProduct(t)
			c.product(t, "kubeadm", "takeover")
			taken := c.controlPlaneManifests(t)
			tc.breaks(t)
			c.awaitRefusal(t)
			if tc.upgraded {
				c.upgrade(t, "--patches=/etc/kubernetes/sa-controller-manager-patches")
				testutil.Check(t, "after an upgrade with our patches", taken, c.controlPlaneManifests(t))
			}
			// The installed binary may be broken or gone: run another copy.
			t.Log(c.onNode(t, nodeBinaries+"/sa-controller-manager", "kubeadm", "handback"))
			c.checkHandedBack(t, before, tc.name)
		})
		if !whole {
			return // the next case would start from a broken state
		}
	}
}

// controlPlaneManifests are those of the two components that a takeover changes, by name.
func (c *cluster) controlPlaneManifests(t *testing.T) map[string]string {
	t.Helper()
	manifests := map[string]string{}
	for _, name := range []string{"kube-apiserver", "kube-controller-manager"} {
		manifests[name] = c.readManifest(t, name)
	}
	return manifests
}

// checkHandedBack checks that the manifests are those from before the takeover, that our webhook is
// gone, and that the API accepts the token of a new Pod. The namespace must not exist yet.
func (c *cluster) checkHandedBack(t *testing.T, before map[string]string, namespace string) {
	t.Helper()
	diff := cmp.Diff(before, c.controlPlaneManifests(t))
	testutil.Expect(t, diff == "", "manifests (-before the takeover +after the handback):\n%s", diff)
	c.checkNothingOfUs(t)
	c.namespace(t, namespace)
	c.awaitDefaultAccount(t, namespace)
	answers := c.answers(t, namespace, c.asker(t, on(c.controlPlane())))
	c.isAccount(t, answers["main"].Username, answers["main"].Groups, namespace)
}

// checkNothingOfUs checks that neither the webhook nor a policy for Pods is there.
func (c *cluster) checkNothingOfUs(t *testing.T) {
	t.Helper()
	api := c.client.AdmissionregistrationV1()
	_, mutating := api.MutatingWebhookConfigurations().Get(t.Context(), registration.Name, metav1.GetOptions{})
	_, validating := api.ValidatingWebhookConfigurations().Get(t.Context(), registration.Name, metav1.GetOptions{})
	for _, err := range []error{mutating, validating} {
		testutil.Expect(t, apierrors.IsNotFound(err), "the configurations of the webhook: %v, want none", err)
	}
	for _, policy := range []podpolicy.Policy{podpolicy.Refusal, podpolicy.Completion} {
		exists, _, err := policy.Problem(t.Context(), c.client)
		testutil.Expect(t, !exists && err == nil, "a policy for Pods is there, %v", err)
	}
}

// restartOurPod has the kubelet restart our Pod with its init containers and the current files.
func (c *cluster) restartOurPod(t *testing.T) {
	t.Helper()
	c.without(t, func() {})
}

// without does something while our Pod is away.
func (c *cluster) without(t *testing.T, do func()) {
	t.Helper()
	const away = "/root/sa-controller-manager.yaml"
	c.onNode(t, "mv", ownManifest, away)
	c.awaitPods(t, metav1.NamespaceSystem, func(pods []*corev1.Pod) error {
		if _, there := await.Find(pods, "sa-controller-manager-"+c.controlPlane()); there {
			return errors.New("our Pod is still there without its manifest")
		}
		return nil
	})
	do()
	c.onNode(t, "mv", away, ownManifest)
}

// awaitRefusal waits until Pods are refused because the webhook does not answer. From v1.36 on those of the account
// default do not need it.
func (c *cluster) awaitRefusal(t *testing.T) {
	t.Helper()
	poll(t, "that Pods are refused", func(ctx context.Context) error {
		pod := homeless()
		pod.Spec.ServiceAccountName = "another"
		_, err := c.client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
			return errors.Join(errors.New("the webhook is not missed"), err)
		}
		return nil
	})
}

// rebootWithoutUs restarts the node and waits until the control plane is up without our process.
func (c *cluster) rebootWithoutUs(t *testing.T) {
	t.Helper()
	stopped := time.Now()
	run(t, "docker", "restart", c.controlPlane())
	names := []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}
	// kube-apiserver is a Pod of this node, so there is nothing to watch yet.
	poll(t, "the control plane after the restart", func(ctx context.Context) error {
		for _, name := range names {
			pod, err := c.client.CoreV1().Pods(metav1.NamespaceSystem).Get(ctx, name+"-"+c.controlPlane(), metav1.GetOptions{})
			if err != nil {
				return err
			}
			running := pod.Status.ContainerStatuses
			if !isReady(pod) || len(running) != 1 || running[0].State.Running == nil ||
				running[0].State.Running.StartedAt.Time.Before(stopped.Truncate(time.Second)) {
				return fmt.Errorf("%s is not ready after the restart", pod.Name)
			}
		}
		return nil
	})
	t.Logf("the control plane is ready %v after the node was turned off", time.Since(stopped).Round(100*time.Millisecond))
}
