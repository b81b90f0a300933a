// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kind

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/manifests"

	"sa-controller-manager/test/await"
)

const deleteAll = "kubectl --kubeconfig=/etc/kubernetes/admin.conf delete " +
	"mutatingwebhookconfigurations,validatingwebhookconfigurations --all"

// TestStaticBoot boots a cluster whose kube-apiserver reads our webhook from files, from the first second
// on, and turns its node off and on.
func TestStaticBoot(t *testing.T) {
	c := boots(t, oursStatic(t))
	c.undeletable(t, "undeletable")
	c.restartNode(t)
}

// TestStaticTakeover takes over and hands back, and then goes the ways of TestHandbackWithoutUs.
func TestStaticTakeover(t *testing.T) {
	c := create(t, stock(t, 0))
	c.awaitPods(t, metav1.NamespaceSystem, allReady)
	before := c.controlPlaneManifests(t)
	c.underTraffic(t, "during-takeover", func() { t.Log(c.product(t, "kubeadm", "takeover", "--static-registration")) })
	c.undeletable(t, "undeletable")
	taken := c.controlPlaneManifests(t)
	c.upgrade(t, "--patches=/etc/kubernetes/sa-controller-manager-patches")
	testutil.Check(t, "after an upgrade with our patches", taken, c.controlPlaneManifests(t))
	c.underTraffic(t, "during-handback", func() { t.Log(c.product(t, "kubeadm", "handback")) })
	c.checkHandedBack(t, before, "handed-back")
	c.withoutDeadUs(t, "--static-registration")
}

// undeletable deletes all webhook configurations of the API, which no Pod passes by.
func (c *cluster) undeletable(t *testing.T, namespace string) {
	t.Helper()
	c.underTraffic(t, namespace, func() {
		c.onNode(t, "sh", "-c", deleteAll)
		await.Sleep(t.Context(), 2*time.Second) // for Pods to be created
	})
}

// oursStatic is ours with static registration: what kubeadm takeover --static-registration makes, in the
// terms of kubeadm.
func oursStatic(t *testing.T) string {
	t.Helper()
	configuration := ours(t, true)
	dir := t.TempDir()
	directory := manifests.StaticDirectory
	admission := "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"
	volumes := "      extraVolumes:\n"
	for name, plugin := range map[string]string{"mutating": "MutatingAdmissionWebhook", "validating": "ValidatingAdmissionWebhook",
		"config": ""} {
		volumes += fmt.Sprintf("        - {name: %s, hostPath: %[2]s/%[1]s, mountPath: %[2]s/%[1]s, readOnly: true, pathType: "+
			"DirectoryOrCreate}\n", name, directory)
		if plugin != "" {
			admission += fmt.Sprintf("- name: %s\n  configuration:\n    apiVersion: apiserver.config.k8s.io/v1\n    kind: "+
				"WebhookAdmissionConfiguration\n    staticManifestsDir: %s/%s\n", plugin, directory, name)
		}
	}
	testutil.Must(t, os.WriteFile(filepath.Join(dir, "admission.yaml"), []byte(admission), 0o644))
	staticPod := regexp.MustCompile(`hostPath: (.*static-pod\.yaml)`).FindStringSubmatch(configuration)
	if staticPod == nil {
		t.Fatalf("there is no static pod in\n%s", configuration)
	}
	rendered, err := os.ReadFile(staticPod[1])
	testutil.Must(t, err)
	image := regexp.MustCompile(`image: (.*)`).FindStringSubmatch(string(rendered))
	pod, err := manifests.StaticPod(manifests.StaticPodOptions{Image: image[1], HostBinary: nodeBinaries + "/sa-controller-manager",
		StaticRegistration: true})
	testutil.Must(t, err)
	testutil.Must(t, os.WriteFile(staticPod[1], pod, 0o644))
	for old, more := range map[string]string{
		"    extraMounts:\n": fmt.Sprintf("      - {hostPath: %q, containerPath: %s/config, readOnly: true}\n", dir, directory),
		"          value: ServiceAccount\n": "        - name: admission-control-config-file\n          value: " + directory +
			"/config/admission.yaml\n" + volumes,
	} {
		if strings.Count(configuration, old) != 1 {
			t.Fatalf("%q is not there once:\n%s", old, configuration)
		}
		configuration = strings.Replace(configuration, old, old+more, 1)
	}
	return configuration
}
