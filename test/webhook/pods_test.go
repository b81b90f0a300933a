// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/internal/testutil"
)

// tokenPath is where every container finds its token.
const tokenPath = "/var/run/secrets/kubernetes.io/serviceaccount"

// newPod is a Pod that says no more than it must. The changes make it a case.
func newPod(changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "image"}}},
	}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

// of has the Pod name an account.
func of(account string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.ServiceAccountName = account }
}

func withInitContainer(pod *corev1.Pod) {
	pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: "init", Image: "image"})
}

// mirror makes it the copy of a static Pod. Such a Pod must say where it runs.
func mirror(pod *corev1.Pod) {
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, corev1.MirrorPodAnnotationKey, "hash")
	pod.Spec.NodeName = "node"
}

func environment(secret string) corev1.EnvVar {
	return corev1.EnvVar{Name: "KEY", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Key: "key",
	}}}
}

// create creates the Pod, which must be admitted, and returns what became of it.
func (c *cluster) create(t *testing.T, namespace string, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	return testutil.Get(c.client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}))(t)
}

// refuse creates the Pod, which must be refused with 403 and that text.
func (c *cluster) refuse(t *testing.T, namespace string, pod *corev1.Pod, text string) {
	t.Helper()
	_, err := c.client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	refused(t, err, text)
}

func refused(t *testing.T, err error, text string) {
	t.Helper()
	testutil.Expect(t, apierrors.IsForbidden(err) && strings.Contains(err.Error(), text), "got %v, want a refusal that says %q", err, text)
}

func (c *cluster) createAccount(t *testing.T, namespace, name string, changes ...func(*corev1.ServiceAccount)) *corev1.ServiceAccount {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	for _, change := range changes {
		change(account)
	}
	return testutil.Get(c.client.CoreV1().ServiceAccounts(namespace).Create(t.Context(), account, metav1.CreateOptions{}))(t)
}

// try creates a Pod with dryRun.
func (c *cluster) try(ctx context.Context, namespace string, pod *corev1.Pod) (*corev1.Pod, error) {
	return c.client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

// bound reports whether kube-apiserver asks both webhooks about Pods: only mutation names
// an account, and a mirror Pod is checked by validation alone.
func (c *cluster) bound(ctx context.Context) (mutation, validation bool, _ error) {
	pod, err := c.try(ctx, metav1.NamespaceDefault, newPod())
	if err != nil {
		return false, false, err
	}
	_, err = c.try(ctx, metav1.NamespaceDefault, newPod(mirror, of("default")))
	if err != nil && !apierrors.IsForbidden(err) {
		return false, false, err
	}
	return pod.Spec.ServiceAccountName != "", err != nil, nil
}

// awaitBound returns once kube-apiserver asks both webhooks: it learns of their
// configurations through a watch of its own, which nothing announces.
func (c *cluster) awaitBound(t *testing.T) {
	t.Helper()
	poll(t, "await that kube-apiserver calls the webhooks", func(ctx context.Context) error {
		mutation, validation, err := c.bound(ctx)
		if err == nil && !(mutation && validation) {
			err = fmt.Errorf("mutation %t, validation %t", mutation, validation)
		}
		return err
	})
}

var tokenVolumeName = regexp.MustCompile(`^kube-api-access-[a-z0-9]{5}$`)

// complete holds a Pod of an account to what the in-tree plugin would have made of it:
// one volume, the last one, mounted in every container.
func complete(t *testing.T, pod *corev1.Pod, account string) {
	t.Helper()
	testutil.Check(t, "account of the Pod", account, pod.Spec.ServiceAccountName)
	testutil.Require(t, len(pod.Spec.Volumes) != 0, "the Pod has no volume")
	volume := pod.Spec.Volumes[len(pod.Spec.Volumes)-1]
	testutil.Expect(t, tokenVolumeName.MatchString(volume.Name), "the token volume is called %q", volume.Name)
	testutil.Check(t, "the token volume", tokenVolume(), volume.VolumeSource)
	mounted(t, pod, volume.Name)
}

// mounted holds every container to a read-only mount of that volume.
func mounted(t *testing.T, pod *corev1.Pod, volume string) {
	t.Helper()
	want := []corev1.VolumeMount{{Name: volume, ReadOnly: true, MountPath: tokenPath}}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, container := range list {
			testutil.Check(t, "mounts of container "+container.Name, want, container.VolumeMounts)
		}
	}
}

// tokenVolume is that of kube-apiserver v1.37 (plugin/pkg/admission/serviceaccount).
func tokenVolume() corev1.VolumeSource {
	return corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		DefaultMode: new(int32(0o644)),
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: new(int64(3607)), Path: "token"}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
				Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
			}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{
				Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"},
			}}}},
		},
	}}
}

// TestPods creates Pods, each right after its namespace was created. What becomes of all others is
// compared with the in-tree plugin, by TestAsInTree and in test/differential.
func TestPods(t *testing.T) {
	c := controlPlane(t)
	const template = "{schemaVersion: 1, rules: [{imagePullSecrets: [{name: of-the-template}]}]}"
	c.manage(t, "--account-template="+testutil.WriteFile(t, "template.yaml", []byte(template)))
	limited := func(account *corev1.ServiceAccount) {
		account.Annotations = map[string]string{"kubernetes.io/enforce-mountable-secrets": "true"}
		account.Secrets = []corev1.ObjectReference{{Name: "listed"}}
	}
	for name, run := range map[string]func(t *testing.T, namespace string){
		// No account is waited for: the webhook creates it.
		"Minimal": func(t *testing.T, namespace string) {
			pod := c.create(t, namespace, newPod(withInitContainer))
			complete(t, pod, "default")
			testutil.Check(t, "the pull secrets of the account", []corev1.LocalObjectReference{{Name: "of-the-template"}},
				pod.Spec.ImagePullSecrets)
		},
		// CVE-2023-2728: what is added later is held to the same.
		"EphemeralContainers": func(t *testing.T, namespace string) {
			c.createAccount(t, namespace, "limited", limited)
			pod := c.create(t, namespace, newPod(of("limited")))
			refused(t, c.debug(t, pod, environment("other")),
				`ephemeral container debug with envVar KEY referencing secret.secretName="other" is not allowed `+
					`because service account limited does not reference that secret`)
			testutil.CheckError(t, "an ephemeral container with a Secret of the account", "", c.debug(t, pod, environment("listed")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, c.namespace(t))
		})
	}
}

// debug adds an ephemeral container to the Pod, as kubectl debug does.
func (c *cluster) debug(t *testing.T, pod *corev1.Pod, env ...corev1.EnvVar) error {
	t.Helper()
	changed := pod.DeepCopy()
	changed.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name: "debug", Image: "image", Env: env,
		ImagePullPolicy: corev1.PullAlways, TerminationMessagePolicy: corev1.TerminationMessageReadFile,
	}}}
	_, err := c.client.CoreV1().Pods(pod.Namespace).UpdateEphemeralContainers(t.Context(), pod.Name, changed, metav1.UpdateOptions{})
	return err
}
