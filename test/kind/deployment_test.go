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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/internal/testutil"
)

// ownNamespace is where the overlay puts everything.
const ownNamespace = "sa-controller-manager"

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

// prepare makes what the overlay and the chart need. It returns the image.
func (c *cluster) prepare(t *testing.T) string {
	t.Helper()
	archive := os.Getenv("SACM_IMAGE")
	testutil.Require(t, archive != "", "SACM_IMAGE is not set; use make e2e-kind")
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
	err := json.Unmarshal([]byte(run(t, "tar", "-xOf", archive, "manifest.json")), &images)
	testutil.Require(t, err == nil, "%s: %v", archive, err)
	return images[0].RepoTags[0]
}

// apply applies an overlay with the image that was loaded.
func (c *cluster) apply(t *testing.T, overlay, image string) {
	t.Helper()
	source := testutil.Get(filepath.Abs("../../manifests"))(t)
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
