// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kind

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sa-controller-manager/internal/testutil"
)

// ownNamespace is where the overlay puts everything.
const ownNamespace = "sa-controller-manager"

// leaseDuration is how long nobody may lead after a leader has died without a word: the
// default of --leader-elect-lease-duration, and two retries.
const leaseDuration = 15*time.Second + 2*2*time.Second

// TestDeployment runs two replicas behind a Service in a cluster with workers, which is
// then the only one to make ServiceAccounts and to complete Pods.
func TestDeployment(t *testing.T) {
	c := create(t, stock(t, 2))
	c.awaitPods(t, metav1.NamespaceSystem, allReady)
	c.deploy(t)
	c.turnKubernetesOff(t)
	namespace := c.namespace(t, "in-use")
	c.awaitAdmission(t, namespace)
	answers := c.answers(t, namespace, c.asker(t, on(c.name+"-worker"), withInitContainer))
	c.isAccount(t, answers["main"].Username, answers["main"].Groups, namespace)

	t.Run("RollingUpdate", func(t *testing.T) {
		c.unharmed(t, "during-rolling-update", func() {
			c.patchDeployment(t, `{"spec":{"template":{"metadata":{"annotations":{"rolled":"once"}}}}}`)
			c.awaitRollout(t)
		})
	})
	t.Run("LeaderDeleted", func(t *testing.T) {
		c.unharmed(t, "during-deletion", func() {
			leader := c.leader(t, "")
			testutil.Must(t, c.client.CoreV1().Pods(ownNamespace).Delete(t.Context(), leader, metav1.DeleteOptions{}))
			c.leader(t, leader)
			c.awaitRollout(t)
		})
	})
	t.Run("LeaderKilled", func(t *testing.T) { c.killLeader(t) })
}

// unharmed creates Pods while do runs, all of which must be admitted: kube-apiserver is
// there all the time.
func (c *cluster) unharmed(t *testing.T, name string, do func()) {
	t.Helper()
	namespace := c.namespace(t, name)
	c.awaitDefaultAccount(t, namespace)
	load := c.startLoad(t, namespace)
	do()
	load.pods.Unharmed(t)
}

// killLeader ends the leader as a crash does. Its controllers' work goes on with the other
// replica, and so does admission, but for the calls that were under way to the one that
// has died.
func (c *cluster) killLeader(t *testing.T) {
	namespace := c.namespace(t, "during-kill")
	c.awaitDefaultAccount(t, namespace)
	load := c.startLoad(t, namespace)
	leader := c.leader(t, "")
	pod, err := c.client.CoreV1().Pods(ownNamespace).Get(t.Context(), leader, metav1.GetOptions{})
	testutil.Must(t, err)
	begin := time.Now()
	run(t, "docker", "exec", pod.Spec.NodeName, "pkill", "-KILL", "-f", "^/usr/local/bin/sa-controller-manager")
	next := c.namespace(t, "after-kill")
	c.awaitDefaultAccount(t, next)
	if took := time.Since(begin); took > leaseDuration {
		t.Errorf("the account of a new namespace came after %v, want %v at most", took, leaseDuration)
	}
	t.Logf("the account of a new namespace came %v after the leader was killed", time.Since(begin).Round(10*time.Millisecond))
	c.awaitRollout(t)
	calls, refused := load.finish(), 0
	for _, one := range calls {
		if one.Err != nil {
			refused++
			t.Logf("refused %v after the kill: %v", one.Ended.Sub(begin).Round(time.Millisecond), one.Err)
		}
	}
	t.Logf("%d of %d calls were refused", refused, len(calls))
	// What kube-apiserver has sent to a process that then dies nobody can answer. It
	// does not try again, and the endpoint goes once the kubelet has noticed.
	const most = 40 // two seconds
	if refused > most {
		t.Errorf("%d calls were refused, want %d at most", refused, most)
	}
}

// deploy applies the overlay as it tells its reader to.
func (c *cluster) deploy(t *testing.T) {
	t.Helper()
	c.apply(t, "overlays/deployment", c.prepare(t))
	c.awaitRollout(t)
}

// prepare makes what the overlay and the chart need. It returns the image.
func (c *cluster) prepare(t *testing.T) string {
	t.Helper()
	archive := os.Getenv("SACM_IMAGE")
	if archive == "" {
		t.Fatal("SACM_IMAGE is not set; use make e2e-kind")
	}
	run(t, kindCLI(), "load", "image-archive", archive, "--name", c.name)
	c.kubectl(t, "create", "namespace", ownNamespace)
	c.kubectl(t, "-n", ownNamespace, "create", "secret", "generic", "sa-controller-manager-pki",
		"--from-file=sa.key=/etc/kubernetes/pki/sa.key", "--from-file=ca.crt=/etc/kubernetes/pki/ca.crt")
	return imageIn(t, archive)
}

// imageIn is the name of the image in an archive.
func imageIn(t *testing.T, archive string) string {
	t.Helper()
	var images []struct{ RepoTags []string }
	if err := json.Unmarshal([]byte(run(t, "tar", "-xOf", archive, "manifest.json")), &images); err != nil {
		t.Fatalf("%s: %v", archive, err)
	}
	return images[0].RepoTags[0]
}

// apply applies an overlay with the image that was loaded.
func (c *cluster) apply(t *testing.T, overlay, image string) {
	t.Helper()
	source, err := filepath.Abs("../../manifests")
	testutil.Must(t, err)
	run(t, "docker", "cp", source, c.controlPlane()+":/opt/manifests")
	rendered := c.onNode(t, "kubectl", "kustomize", "/opt/manifests/"+overlay)
	replaced := regexp.MustCompile(`image: sa-controller-manager:v\S+`).ReplaceAllLiteralString(rendered, "image: "+image)
	c.onNodeWith(t, replaced, "kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "apply", "--server-side", "-f", "-")
}

// kubectl runs on the node, as its administrator.
func (c *cluster) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return c.onNode(t, append([]string{"kubectl", "--kubeconfig=/etc/kubernetes/admin.conf"}, args...)...)
}

// turnKubernetesOff has kube-controller-manager and kube-apiserver leave all to us.
func (c *cluster) turnKubernetesOff(t *testing.T) {
	t.Helper()
	const controllers = "--controllers=*,bootstrapsigner,tokencleaner,-serviceaccount-controller," +
		"-root-ca-certificate-publisher-controller,-legacy-serviceaccount-token-cleaner-controller," +
		"-kube-apiserver-serving-clustertrustbundle-publisher-controller"
	manifest := c.readManifest(t, "kube-controller-manager")
	for line := range strings.Lines(manifest) {
		switch flag := strings.TrimPrefix(strings.TrimSpace(line), "- "); {
		case strings.HasPrefix(flag, "--controllers="):
			manifest = strings.Replace(manifest, flag, controllers, 1)
		case strings.HasPrefix(flag, "--service-account-private-key-file="):
			manifest = strings.Replace(manifest, flag, "--service-account-private-key-file=", 1)
		}
	}
	c.writeManifest(t, "kube-controller-manager", manifest)
	c.awaitRestart(t, "kube-controller-manager", controllers)
	c.editManifest(t, "kube-apiserver", "    - --disable-admission-plugins=ServiceAccount\n")
	c.awaitRestart(t, "kube-apiserver", "--disable-admission-plugins=ServiceAccount")
}

// leader is the Pod that holds the Lease, once that is another one than the given one.
func (c *cluster) leader(t *testing.T, than string) (pod string) {
	t.Helper()
	poll(t, "a leader", func(ctx context.Context) error {
		lease, err := c.client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, "sa-controller-manager", metav1.GetOptions{})
		if err != nil {
			return err
		}
		// The identity is hostname_uuid, and the hostname that of the Pod.
		if pod, _, _ = strings.Cut(ptr.Deref(lease.Spec.HolderIdentity, ""), "_"); pod == "" || pod == than {
			return fmt.Errorf("%q leads", pod)
		}
		return nil
	})
	return pod
}

func (c *cluster) patchDeployment(t *testing.T, patch string) {
	t.Helper()
	_, err := c.client.AppsV1().Deployments(ownNamespace).Patch(t.Context(), "sa-controller-manager", types.MergePatchType, []byte(patch),
		metav1.PatchOptions{})
	testutil.Must(t, err)
}

// awaitRollout returns once all replicas are new, there and ready, and no old one is left.
func (c *cluster) awaitRollout(t *testing.T) {
	t.Helper()
	poll(t, "the rollout", func(ctx context.Context) error {
		deployment, err := c.client.AppsV1().Deployments(ownNamespace).Get(ctx, "sa-controller-manager", metav1.GetOptions{})
		if err != nil {
			return err
		}
		status, want := deployment.Status, *deployment.Spec.Replicas
		if status.ObservedGeneration < deployment.Generation || status.UpdatedReplicas != want || status.AvailableReplicas != want ||
			status.Replicas != want {
			return fmt.Errorf("%d updated, %d available of %d", status.UpdatedReplicas, status.AvailableReplicas, want)
		}
		pods, err := c.client.CoreV1().Pods(ownNamespace).List(ctx, metav1.ListOptions{})
		if err == nil && len(pods.Items) != int(want) {
			err = fmt.Errorf("%d Pods, want %d", len(pods.Items), want)
		}
		return err
	})
}
