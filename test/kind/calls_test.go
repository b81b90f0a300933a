// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kind

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/controllers/rootca"
	"sa-controller-manager/internal/testutil"
)

// callTheAPI has Pods call the API with what our webhook has mounted.
func (c *cluster) callTheAPI(t *testing.T, worker string) {
	cases := map[string]struct {
		reason  string
		changes []func(*corev1.Pod)
		asked   []string // containers
	}{
		"ControlPlane": {changes: []func(*corev1.Pod){on(c.controlPlane())}, asked: []string{"main"}},
		"Worker":       {changes: []func(*corev1.Pod){on(worker)}, asked: []string{"main"}},
		"InitContainer": {
			reason: "it gets a mount too", changes: []func(*corev1.Pod){on(worker), withInitContainer}, asked: []string{"init", "main"},
		},
	}
	if c.minor(t) >= 37 {
		one := cases["Worker"]
		one.reason, one.changes = "the kubelet projects our bundle, which kube-apiserver fits", append(one.changes, trustsBundle)
		cases["TrustBundle"] = one
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			namespace := c.namespace(t, "calls-"+strings.ToLower(name))
			// In the same instant as its namespace: nobody awaits the account.
			answers := c.answers(t, namespace, c.asker(t, tc.changes...))
			for _, container := range tc.asked {
				c.isAccount(t, answers[container].Username, answers[container].Groups, namespace)
			}
		})
	}
	t.Run("AutomountOff", func(t *testing.T) { c.automountOff(t) })
	t.Run("PullSecrets", func(t *testing.T) { c.pullSecrets(t) })
}

// trustsBundle has the Pod verify kube-apiserver by the ClusterTrustBundle.
func trustsBundle(pod *corev1.Pod) {
	const name, directory, file = "trust", "/trust", "ca.crt"
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{
			SignerName: new(rootca.ServingSigner), LabelSelector: &metav1.LabelSelector{}, Path: file,
		}}}},
	}})
	main := &pod.Spec.Containers[0]
	main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: directory, ReadOnly: true})
	main.Env = append(main.Env, corev1.EnvVar{Name: "CA_FILE", Value: directory + "/" + file})
}

// automountOff covers a Pod that wants no token, and an account that gives none.
func (c *cluster) automountOff(t *testing.T) {
	namespace := c.namespace(t, "automount-off")
	off := false
	pod := c.createPod(t, namespace, func(pod *corev1.Pod) { pod.Spec.AutomountServiceAccountToken = &off })
	if slices.ContainsFunc(pod.Spec.Containers, mounts) {
		t.Error("a Pod that wants no token has one")
	}
	c.updateDefaultAccount(t, namespace, func(account *corev1.ServiceAccount) { account.AutomountServiceAccountToken = &off })
	c.awaitPodAs(t, namespace, "without a token", func(pod *corev1.Pod) bool {
		return !slices.ContainsFunc(pod.Spec.Containers, mounts)
	})
}

// pullSecrets covers those of the account, which a Pod gets that has none.
func (c *cluster) pullSecrets(t *testing.T) {
	namespace := c.namespace(t, "pull-secrets")
	theirs, own := []corev1.LocalObjectReference{{Name: "registry"}}, []corev1.LocalObjectReference{{Name: "own"}}
	c.updateDefaultAccount(t, namespace, func(account *corev1.ServiceAccount) { account.ImagePullSecrets = theirs })
	c.awaitPodAs(t, namespace, "with the account's pull secrets", func(pod *corev1.Pod) bool {
		return slices.Equal(theirs, pod.Spec.ImagePullSecrets)
	})
	pod := c.createPod(t, namespace, func(pod *corev1.Pod) { pod.Spec.ImagePullSecrets = own })
	if diff := cmp.Diff(own, pod.Spec.ImagePullSecrets); diff != "" {
		t.Errorf("a Pod with its own pull secrets (-own +got):\n%s", diff)
	}
}

// createPod creates a Pod that never runs.
func (c *cluster) createPod(t *testing.T, namespace string, changes ...func(*corev1.Pod)) *corev1.Pod {
	t.Helper()
	pod := homeless()
	for _, change := range changes {
		change(pod)
	}
	made, err := c.client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	testutil.Must(t, err)
	return made
}

// updateDefaultAccount changes the account. Admission learns of it a moment later.
func (c *cluster) updateDefaultAccount(t *testing.T, namespace string, change func(*corev1.ServiceAccount)) {
	t.Helper()
	c.awaitDefaultAccount(t, namespace)
	accounts := c.client.CoreV1().ServiceAccounts(namespace)
	account, err := accounts.Get(t.Context(), "default", metav1.GetOptions{})
	testutil.Must(t, err)
	change(account)
	if _, err := accounts.Update(t.Context(), account, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// awaitPodAs asks by dry run, because nothing announces what admission knows, until a
// new Pod is as wanted.
func (c *cluster) awaitPodAs(t *testing.T, namespace, what string, wanted func(*corev1.Pod) bool) {
	t.Helper()
	poll(t, "that a new Pod in namespace "+namespace+" is "+what, func(ctx context.Context) error {
		pod, err := c.client.CoreV1().Pods(namespace).Create(ctx, homeless(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		testutil.Must(t, err)
		if !wanted(pod) {
			return fmt.Errorf("it is %+v", pod.Spec)
		}
		return nil
	})
}
