// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sa-controller-manager/internal/testutil"
)

// TestMissedPods creates Pods while kube-apiserver does not call the webhook. The command lists exactly
// those that lack something.
func TestMissedPods(t *testing.T) {
	c := controlPlane(t)
	namespace := c.namespace(t)
	want := c.missablePods(t, namespace)
	c.manage(t)
	c.awaitAccount(t, namespace, "default") // which says whether a Pod wants a token

	var listed struct {
		Missed, Uncertain []struct {
			Name    string
			Missing []string
		}
	}
	testutil.Must(t, json.Unmarshal(c.command(t, 2, "missed", "-o=json", "--namespace="+namespace), &listed))
	got := map[string]string{}
	for _, pod := range listed.Missed {
		got[pod.Name] = strings.Join(pod.Missing, " ")
	}
	testutil.Check(t, "missed Pods", want, got)
	if len(listed.Uncertain) != 1 || listed.Uncertain[0].Name != "account-changed" {
		t.Errorf("uncertain is %v, want account-changed", listed.Uncertain)
	}
}

// missablePods creates one Pod of each sort and returns what those lack that were missed.
func (c *cluster) missablePods(t *testing.T, namespace string) map[string]string {
	t.Helper()
	off := func(account *corev1.ServiceAccount) { account.AutomountServiceAccountToken = new(false) }
	c.createAccount(t, namespace, "builder")
	c.createAccount(t, namespace, "quiet", off)
	c.createAccount(t, namespace, "changed", off)
	insists := func(on bool) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Spec.AutomountServiceAccountToken = &on }
	}
	brings := func(pod *corev1.Pod) {
		pod.Spec.Volumes = []corev1.Volume{{Name: "mine", VolumeSource: tokenVolume()}}
		pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "mine", MountPath: tokenPath}}
	}
	for name, changes := range map[string][]func(*corev1.Pod){
		"no-account":       {},
		"no-token":         {of("builder"), withInitContainer},
		"insists":          {of("quiet"), insists(true)},
		"wants-none":       {insists(false)},
		"of-quiet":         {of("quiet")},
		"account-changed":  {of("changed")},
		"joined-by-others": {of("builder"), brings, withInitContainer},
		"mirror":           {mirror},
		"ended":            {},
	} {
		named := func(pod *corev1.Pod) { pod.Name, pod.GenerateName = name, "" }
		c.create(t, namespace, newPod(append(changes, named)...))
	}
	_, err := c.client.CoreV1().Pods(namespace).Patch(t.Context(), "ended", types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`),
		metav1.PatchOptions{}, "status")
	testutil.Must(t, err)
	// Times in the API are whole seconds.
	created := time.Now().Unix()
	poll(t, "await the next second", func(context.Context) error {
		if time.Now().Unix() == created {
			return fmt.Errorf("it is still %d", created)
		}
		return nil
	})
	_, err = c.client.CoreV1().ServiceAccounts(namespace).Patch(t.Context(), "changed", types.MergePatchType,
		[]byte(`{"automountServiceAccountToken":true}`), metav1.PatchOptions{})
	testutil.Must(t, err)
	return map[string]string{"no-account": "account token", "no-token": "token", "insists": "token", "wants-none": "account"}
}
