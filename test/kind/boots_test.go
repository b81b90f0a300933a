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
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sa-controller-manager/controllers/rootca"
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
	testutil.Expect(t, len(missed) == 0, "Pods were admitted without us: %v", missed)
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

// TestChart installs the Helm chart over kustomize's Deployment, upgrades it and rolls it back while Pods
// are created, and uninstalls it, which is refused while kube-apiserver's plugin is off: no Pod may be
// refused once nothing answers, nor admitted without its token.
func TestChart(t *testing.T) {
	c := create(t, stock(t, 0))
	c.awaitPods(t, metav1.NamespaceSystem, allReady)
	image := c.prepare(t)
	c.apply(t, "overlays/deployment", image)
	repository, tag, _ := strings.Cut(image, ":")
	flags := []string{"--wait", "--kubeconfig=" + c.kubeconfig, "--namespace=" + ownNamespace}
	helm := func(args ...string) {
		t.Helper()
		run(t, os.Getenv("SACM_HELM"), append(args, flags...)...)
	}
	install := func(flags ...string) {
		t.Helper()
		helm(append([]string{"install", "sacm", "../../manifests/chart", "--set-string=image.repository=" + repository + ",image.tag=" +
			tag,
			"--set=networkPolicy.cidrs={0.0.0.0/0}"},
			flags...)...)
	}
	install("--take-ownership", "--force-conflicts")
	c.turnKubernetesOff(t)
	namespace := c.namespace(t, "in-use")
	c.awaitAdmission(t, namespace)
	c.unharmed(t, "during-upgrade", func() {
		helm("upgrade", "sacm", "../../manifests/chart", "--reuse-values", "--force-conflicts", "--set=replicas=3,"+
			"commonLabels.team=a,podAnnotations.a=b,podDisruptionBudget.minAvailable=2")
		c.awaitRollout(t)
		helm("rollback", "sacm", "1", "--force-conflicts")
		c.awaitRollout(t)
	})
	_, err := attempt(t.Context(), "", os.Getenv("SACM_HELM"), append([]string{"uninstall", "sacm"}, flags...)...)
	testutil.Expect(t, err != nil, "it was uninstalled while kube-apiserver's plugin is off")
	said := c.kubectl(t, "-n", ownNamespace, "logs", "job/sa-controller-manager-uninstall")
	for _, want := range []string{"--disable-admission-plugins=ServiceAccount", "webhook unregister --yes"} {
		testutil.Expect(t, strings.Contains(said, want), "the log of the uninstallation does not name %s:\n%s", want, said)
	}
	c.awaitAdmission(t, namespace)
	const off, on = "--disable-admission-plugins=ServiceAccount", "--disable-admission-plugins=DefaultStorageClass"
	c.writeManifest(t, "kube-apiserver", strings.Replace(c.readManifest(t, "kube-apiserver"), off, on, 1))
	c.awaitRestart(t, "kube-apiserver", on)
	helm("uninstall", "sacm") // which does not wait for the Pods of the Deployment
	poll(t, "the end of all that was installed", func(context.Context) error {
		if left := c.kubectl(t, "-n", ownNamespace, "get", "all,serviceaccounts", "--field-selector=metadata.name!=default", "-o",
			"name"); left != "" {
			return fmt.Errorf("there are\n%s", left)
		}
		return nil
	})
	c.awaitAdmission(t, namespace) // by the plugin
	c.writeManifest(t, "kube-apiserver", strings.Replace(c.readManifest(t, "kube-apiserver"), on, off, 1))
	c.awaitRestart(t, "kube-apiserver", off)
	c.product(t, "webhook", "register", "--kubeconfig=/etc/kubernetes/admin.conf")
	install()
	c.awaitAdmission(t, namespace)
}

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
}

// trustsBundle has the Pod verify kube-apiserver by the ClusterTrustBundle.
func trustsBundle(pod *corev1.Pod) {
	const name, directory, file = "trust", "/trust", "ca.crt"
	bundle := corev1.VolumeProjection{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{
		SignerName: new(rootca.ServingSigner), LabelSelector: &metav1.LabelSelector{}, Path: file,
	}}
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{bundle}},
	}})
	main := &pod.Spec.Containers[0]
	main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: directory, ReadOnly: true})
	main.Env = append(main.Env, corev1.EnvVar{Name: "CA_FILE", Value: directory + "/" + file})
}
