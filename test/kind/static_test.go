// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kind

import (
	"context"
	"errors"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/await"
)

// deleteAll deletes what an administrator can delete of ours through the API.
const deleteAll = `export KUBECONFIG=/etc/kubernetes/admin.conf
kubectl delete mutatingwebhookconfigurations,validatingwebhookconfigurations --all
kubectl delete validatingadmissionpolicybindings,validatingadmissionpolicies --all
kubectl delete mutatingadmissionpolicybindings,mutatingadmissionpolicies --all
kubectl --namespace kube-system delete pods --selector component=sa-controller-manager --wait=false
kubectl --namespace kube-system get leases,secrets,configmaps --output name | grep sa-controller-manager |
	xargs kubectl --namespace kube-system delete`

// TestStaticTakeover takes over and hands back while Pods are created, uses the cluster in between, and then
// breaks our process in several ways.
func TestStaticTakeover(t *testing.T) {
	config := stock(t, 1)
	if strings.Contains(os.Getenv("KIND_NODE_IMAGE"), ":v1.36.") { // there it is alpha
		config += "featureGates: {ManifestBasedAdmissionControlConfig: true}\n"
	}
	c := create(t, config)
	c.awaitPods(t, metav1.NamespaceSystem, allReady)
	usual := c.outageOfAnEdit(t)
	before, untouched := c.controlPlaneManifests(t), c.versions(t)
	took := c.underTraffic(t, "during-takeover", func() { t.Log(c.product(t, "kubeadm", "takeover")) })
	within(t, "takeover", took, 2, usual) // to read files, and to lose the plugin
	now := c.versions(t)
	maps.DeleteFunc(now, func(name, _ string) bool { return untouched[name] == "" })
	testutil.Check(t, "resourceVersions of what there was", untouched, now)
	t.Run("Calls", func(t *testing.T) { c.callTheAPI(t, c.name+"-worker") })
	t.Run("Heals", c.healsWithoutUs)
	c.undeletable(t, "undeletable")
	c.underTraffic(t, "during-restart", func() { c.killAPIServer(t) })
	taken := c.controlPlaneManifests(t)
	c.upgrade(t, "--patches=/etc/kubernetes/sa-controller-manager-patches")
	for _, manifests := range []map[string]string{before, taken} { // kubeadm writes them again
		manifests["kube-apiserver"] = strings.Replace(manifests["kube-apiserver"], harmlessEdit, "", 1)
	}
	testutil.Check(t, "after an upgrade with our patches", taken, c.controlPlaneManifests(t))
	within(t, "handback", c.underTraffic(t, "during-handback", func() { t.Log(c.product(t, "kubeadm", "handback")) }), 1, usual)
	c.checkHandedBack(t, before, "handed-back")
	c.withoutDeadUs(t)
}

// healsWithoutUs rolls CoreDNS and a Deployment of an account default out while our process is away: kube-apiserver
// completes their Pods, and accepts the tokens with which they run.
func (c *cluster) healsWithoutUs(t *testing.T) {
	namespace := c.namespace(t, "heals")
	c.awaitDefaultAccount(t, namespace)
	asker := c.asker(t)
	asker.Spec.RestartPolicy = corev1.RestartPolicyAlways
	asker.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "STAY", Value: "1"}} // if the token is accepted
	labels := map[string]string{"app": "asker"}
	c.without(t, func() {
		c.awaitRefusal(t)
		_, err := c.client.AppsV1().Deployments(namespace).Create(t.Context(), &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: "asker"},
			Spec: appsv1.DeploymentSpec{
				Selector: &metav1.LabelSelector{MatchLabels: labels}, MinReadySeconds: 3,
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: asker.Spec},
			},
		}, metav1.CreateOptions{})
		testutil.Must(t, err)
		c.kubectl(t, "-n", metav1.NamespaceSystem, "rollout", "restart", "deployment/coredns")
		// CoreDNS is ready once it has listed Services by its token.
		c.kubectl(t, "-n", metav1.NamespaceSystem, "rollout", "status", "deployment/coredns", "--timeout=3m")
		c.kubectl(t, "-n", namespace, "rollout", "status", "deployment/asker", "--timeout=3m")
		answers := c.answers(t, namespace, c.asker(t))
		c.isAccount(t, answers["main"].Username, answers["main"].Groups, namespace)
	})
	c.awaitPods(t, metav1.NamespaceSystem, allReady)
}

// undeletable deletes all of ours that is in the API, which no Pod passes by.
func (c *cluster) undeletable(t *testing.T, namespace string) {
	t.Helper()
	c.underTraffic(t, namespace, func() {
		t.Log(c.onNode(t, "sh", "-c", deleteAll))
		await.Sleep(t.Context(), 2*time.Second) // for Pods to be created
	})
}

// killAPIServer returns once the kubelet has started kube-apiserver again.
func (c *cluster) killAPIServer(t *testing.T) {
	t.Helper()
	name := "kube-apiserver-" + c.controlPlane()
	pod := testutil.Get(c.client.CoreV1().Pods(metav1.NamespaceSystem).Get(t.Context(), name, metav1.GetOptions{}))(t)
	before := restarts(pod)
	c.onNode(t, "pkill", "-x", "kube-apiserver")
	poll(t, "that kube-apiserver is back", func(ctx context.Context) error {
		pod, err := c.client.CoreV1().Pods(metav1.NamespaceSystem).Get(ctx, name, metav1.GetOptions{})
		if err == nil && (restarts(pod) == before || !isReady(pod)) {
			err = errors.New("it has not been started again yet")
		}
		return err
	})
}

// upgrade ignores CreateJob as docs/takeover.md says for a process that is dead, and otherwise because
// the Job wants a "pause -v" that ends, which not every node image has. The other checks that it
// ignores fail on kind nodes.
func (c *cluster) upgrade(t *testing.T, flags ...string) {
	t.Helper()
	version := testutil.Get(c.client.Discovery().ServerVersion())(t)
	out := c.onNode(t, append([]string{"kubeadm", "upgrade", "apply", version.GitVersion, "--yes", "--force",
		"--ignore-preflight-errors=CreateJob,SystemVerification,CoreDNSUnsupportedPlugins,CoreDNSMigration"}, flags...)...)
	testutil.Require(t, strings.Contains(out, "SUCCESS! A control plane node of your cluster was upgraded"), "kubeadm upgrade apply:\n%s", out)
}
