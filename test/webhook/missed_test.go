// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/faultproxy"
)

// TestMissedPods has Pods created before anybody knows of the webhook, and while it is
// away. The scan reports exactly those that lack something, the command lists them and
// prints what has those created again that a controller owns.
func TestMissedPods(t *testing.T) {
	c := ownControlPlane(t)
	kcm := c.workloadControllers(t)
	namespace := c.namespace(t)
	c.workloads(t, namespace)
	replicas := c.awaitPods(t, namespace, 3)
	want := c.missablePods(t, namespace)
	for _, pod := range replicas {
		want[pod.Name] = "account token"
	}

	proxy := c.proxy(t)
	m := c.manage(t, proxy.Flags(t)...)
	m.awaitScan(t, 0)
	t.Run("Scan", func(t *testing.T) {
		if got := m.metric(t, "sacm_webhook_missed_pods", nil); got != float64(len(want)) {
			t.Errorf("the metric says %v Pods, want %d", got, len(want))
		}
		c.awaitScanEvents(t, namespace, want)
		c.awaitEvent(t, "PodsAdmittedWithoutWebhook", metav1.NamespaceSystem, fmt.Sprintf("lack their account or token: %d,", len(want)))
	})
	t.Run("Command", func(t *testing.T) {
		got := c.missed(t, 2)
		if diff := cmp.Diff(want, got.missing()); diff != "" {
			t.Errorf("missed Pods (-want +got):\n%s", diff)
		}
		if len(got.Uncertain) != 1 || got.Uncertain[0].Name != "account-changed" {
			t.Errorf("uncertain is %v, want account-changed", got.Uncertain)
		}
	})
	t.Run("Typed", func(t *testing.T) {
		bare := c.pods(t, namespace, "app!=web")
		typed := map[string]bool{}
		for _, pod := range c.missed(t, 2).Missed {
			if pod.Command != "" && !typed[pod.Command] {
				typed[pod.Command] = true
				kubectl(t, pod.Command)
			}
		}
		if len(typed) != 2 {
			t.Errorf("typed %v, want one command for the Deployment and one for the ReplicaSet", typed)
		}
		for _, pod := range c.awaitSuccessors(t, namespace, replicas) {
			complete(t, &pod, "default")
		}
		if diff := cmp.Diff(identities(bare), identities(c.pods(t, namespace, "app!=web"))); diff != "" {
			t.Errorf("Pods that nobody creates again (-before +after):\n%s", diff)
		}
	})
	scans := 1
	t.Run("Away", func(t *testing.T) {
		await.Long(t) // there is half a minute between two scans
		scans++
		scanned := m.metric(t, "sacm_webhook_missed_scan_timestamp_seconds", nil)
		c.deleteBoth(t)
		c.awaitMissedPod(t, namespace)
		c.awaitBound(t)
		m.awaitScan(t, scanned)
		if got := m.metric(t, "sacm_webhook_missed_pods", nil); got != float64(len(want)-len(replicas)+1) {
			t.Errorf("the metric says %v Pods, want the previous ones less %d and one more", got, len(replicas))
		}
	})
	t.Run("NoneLeft", func(t *testing.T) {
		for _, pod := range c.missed(t, 2).Missed {
			if err := c.client.CoreV1().Pods(pod.Namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
				t.Fatal(err)
			}
		}
		c.missed(t, 0)
	})
	// The lists of the scans and the cleaner's one look at the clock, and no more: while nothing
	// changes nothing is asked for.
	lists := proxy.Requests(faultproxy.On("list", ""))
	pods := proxy.Requests(faultproxy.On("list", "pods"))
	leases := proxy.Requests(faultproxy.On("list", "leases"))
	if len(pods) != scans || len(leases) > 1 || len(lists) != len(pods)+len(leases) {
		t.Errorf("lists of the manager: %v, want one of Pods for each of %d scans, and one of Leases at most", lists, scans)
	}
	if _, err := kcm.Stop(); err != nil {
		t.Error(err)
	}
}

// missablePods creates one Pod of each sort and says what those lack that are misses.
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
		"wants-only-that":  {of("builder"), insists(false)},
		"of-quiet":         {of("quiet")},
		"account-changed":  {of("changed")},
		"brings-its-own":   {of("builder"), brings},
		"joined-by-others": {of("builder"), brings, withInitContainer},
		"mirror":           {mirror},
		"ended":            {},
		"going":            {func(pod *corev1.Pod) { pod.Finalizers = []string{"example.org/stay"} }},
	} {
		named := func(pod *corev1.Pod) { pod.Name, pod.GenerateName = name, "" }
		c.create(t, namespace, newPod(append(changes, named)...))
	}
	pods := c.client.CoreV1().Pods(namespace)
	if err := pods.Delete(t.Context(), "going", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := pods.Patch(t.Context(), "ended", types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{"no-account": "account token", "no-token": "token", "insists": "token", "wants-none": "account"}
}

// workloads creates a Deployment of one Pod and a ReplicaSet of two, all with the label app=web.
func (c *cluster) workloads(t *testing.T, namespace string) {
	t.Helper()
	labels := func(of string) map[string]string { return map[string]string{"app": "web", "of": of} }
	selector := func(of string) *metav1.LabelSelector { return &metav1.LabelSelector{MatchLabels: labels(of)} }
	template := func(of string) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels(of)}, Spec: newPod().Spec}
	}
	_, err := c.client.AppsV1().Deployments(namespace).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "deployed"},
		Spec: appsv1.DeploymentSpec{
			Selector: selector("deployment"), Template: template("deployment"),
			// No Pod becomes ready here, which a rolling update would wait for.
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.client.AppsV1().ReplicaSets(namespace).Create(t.Context(), &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: "replicated"},
		Spec:       appsv1.ReplicaSetSpec{Replicas: new(int32(2)), Selector: selector("replicas"), Template: template("replicas")},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// workloadControllers starts the real kube-controller-manager with what creates the Pods
// of workloads.
func (c *cluster) workloadControllers(t *testing.T) *devcluster.Manager {
	t.Helper()
	kcm, err := c.StartKubeControllerManager("--controllers=deployment-controller,replicaset-controller")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = kcm.Kill() })
	if err := kcm.Ready(limited(t)); err != nil {
		t.Fatal(err)
	}
	return kcm
}
