// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var tokenVolumeName = regexp.MustCompile(`^kube-api-access-[a-z0-9]{5}$`)

// complete holds a Pod of an account to what the in-tree plugin would have made of it:
// one volume, the last one, mounted in every container.
func complete(t *testing.T, pod *corev1.Pod, account string) {
	t.Helper()
	if pod.Spec.ServiceAccountName != account {
		t.Errorf("the Pod's account is %q, want %q", pod.Spec.ServiceAccountName, account)
	}
	if len(pod.Spec.Volumes) == 0 {
		t.Fatal("the Pod has no volume")
	}
	volume := pod.Spec.Volumes[len(pod.Spec.Volumes)-1]
	if !tokenVolumeName.MatchString(volume.Name) {
		t.Errorf("the token volume is called %q", volume.Name)
	}
	if diff := cmp.Diff(tokenVolume(), volume.VolumeSource); diff != "" {
		t.Errorf("the token volume (-want +got):\n%s", diff)
	}
	mounted(t, pod, volume.Name)
}

// mounted holds every container to a read-only mount of that volume.
func mounted(t *testing.T, pod *corev1.Pod, volume string) {
	t.Helper()
	want := []corev1.VolumeMount{{Name: volume, ReadOnly: true, MountPath: tokenPath}}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, container := range list {
			if diff := cmp.Diff(want, container.VolumeMounts); diff != "" {
				t.Errorf("the mounts of container %q (-want +got):\n%s", container.Name, diff)
			}
		}
	}
}

// tokenVolume is that of kube-apiserver v1.36 (plugin/pkg/admission/serviceaccount).
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

// TestPods is what becomes of Pods, each right after its namespace was created.
func TestPods(t *testing.T) {
	c := controlPlane(t)
	c.manage(t)
	type world struct {
		*testing.T
		*cluster

		namespace string
	}
	const limits = "kubernetes.io/enforce-mountable-secrets"
	limited := func(account *corev1.ServiceAccount) {
		account.Annotations = map[string]string{limits: "true"}
		account.Secrets = []corev1.ObjectReference{{Name: "listed"}}
	}
	cases := map[string]struct {
		reason string
		run    func(world)
	}{
		"Minimal": {
			reason: "no account is waited for: the webhook creates it",
			run:    func(w world) { complete(w.T, w.create(w.T, w.namespace, newPod(withInitContainer)), "default") },
		},
		"Named": {
			reason: "an account in the same breath",
			run: func(w world) {
				w.createAccount(w.T, w.namespace, "builder")
				complete(w.T, w.create(w.T, w.namespace, newPod(of("builder"))), "builder")
			},
		},
		"OwnName": {
			run: func(w world) {
				w.create(w.T, w.namespace, newPod(func(pod *corev1.Pod) { pod.Name, pod.GenerateName = "mine", "" }))
				w.refuse(w.T, w.namespace, newPod(of("nobody"), func(pod *corev1.Pod) { pod.Name, pod.GenerateName = "other", "" }),
					`pods "other" is forbidden: error looking up service account `+w.namespace+`/nobody: serviceaccount "nobody" not found`)
			},
		},
		"UnknownAccount": {
			run: func(w world) {
				w.refuse(w.T, w.namespace, newPod(of("nobody")),
					`error looking up service account `+w.namespace+`/nobody: serviceaccount "nobody" not found`)
			},
		},
		"PodWithoutToken": {
			run: func(w world) {
				pod := w.create(w.T, w.namespace, newPod(func(pod *corev1.Pod) { pod.Spec.AutomountServiceAccountToken = new(false) }))
				bare(w.T, pod)
			},
		},
		"AccountWithoutToken": {
			run: func(w world) {
				w.createAccount(w.T, w.namespace, "quiet", func(a *corev1.ServiceAccount) { a.AutomountServiceAccountToken = new(false) })
				bare(w.T, w.create(w.T, w.namespace, newPod(of("quiet"))))
				insists := func(pod *corev1.Pod) { pod.Spec.AutomountServiceAccountToken = new(true) }
				complete(w.T, w.create(w.T, w.namespace, newPod(of("quiet"), insists)), "quiet")
			},
		},
		"PullSecrets": {
			run: func(w world) {
				registry := []corev1.LocalObjectReference{{Name: "registry"}}
				w.createAccount(w.T, w.namespace, "puller", func(a *corev1.ServiceAccount) { a.ImagePullSecrets = registry })
				own := []corev1.LocalObjectReference{{Name: "own"}}
				kept := w.create(w.T, w.namespace, newPod(of("puller"), func(pod *corev1.Pod) { pod.Spec.ImagePullSecrets = own }))
				copied := w.create(w.T, w.namespace, newPod(of("puller")))
				got := [][]corev1.LocalObjectReference{copied.Spec.ImagePullSecrets, kept.Spec.ImagePullSecrets}
				if diff := cmp.Diff([][]corev1.LocalObjectReference{registry, own}, got); diff != "" {
					w.Errorf("pull secrets, copied and kept (-want +got):\n%s", diff)
				}
			},
		},
		"MirrorPod": {
			reason: "never changed, and nothing that it could use without an account",
			run: func(w world) {
				bare(w.T, w.create(w.T, w.namespace, newPod(mirror)))
				w.refuse(w.T, w.namespace, newPod(mirror, of("default")), "a mirror pod may not reference service accounts")
				w.refuse(w.T, w.namespace, newPod(mirror, func(pod *corev1.Pod) {
					pod.Spec.Volumes = []corev1.Volume{secretVolume("any")}
				}), "a mirror pod may not reference secrets")
				// kube-apiserver's own validation comes before validating webhooks here. The
				// in-tree plugin comes before that, with words of its own.
				w.reject(w.T, w.namespace, newPod(mirror, func(pod *corev1.Pod) {
					pod.Spec.Volumes = []corev1.Volume{{Name: "token", VolumeSource: tokenVolume()}}
				}), "serviceAccountToken: Forbidden: must not be specified when serviceAccountName is not set")
			},
		},
		"MountableSecrets": {
			reason: "CVE-2024-3177: envFrom counts too, in both kinds of containers",
			run: func(w world) {
				w.createAccount(w.T, w.namespace, "limited", limited)
				env := func(secret string) func(*corev1.Pod) {
					return func(pod *corev1.Pod) {
						pod.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{environmentFrom(secret)}
					}
				}
				initEnv := func(pod *corev1.Pod) {
					pod.Spec.InitContainers[0].EnvFrom = []corev1.EnvFromSource{environmentFrom("other")}
				}
				w.create(w.T, w.namespace, newPod(of("limited"), env("listed")))
				w.refuse(w.T, w.namespace, newPod(of("limited"), env("other")),
					`container main with envFrom referencing secret.secretName="other" is not allowed because service account limited does not reference that secret`)
				w.refuse(w.T, w.namespace, newPod(of("limited"), withInitContainer, initEnv),
					`init container init with envFrom referencing secret.secretName="other" is not allowed because service account limited does not reference that secret`)
				w.refuse(w.T, w.namespace, newPod(of("limited"), func(pod *corev1.Pod) {
					pod.Spec.Volumes = []corev1.Volume{secretVolume("other")}
				}), `volume with secret.secretName="other" is not allowed because service account limited does not reference that secret`)
			},
		},
		"EphemeralContainers": {
			reason: "CVE-2023-2728: what is added later is held to the same",
			run: func(w world) {
				w.createAccount(w.T, w.namespace, "limited", limited)
				pod := w.create(w.T, w.namespace, newPod(of("limited")))
				refused(w.T, w.debug(w.T, pod, environment("other")),
					`ephemeral container debug with envVar KEY referencing secret.secretName="other" is not allowed because service account limited does not reference that secret`)
				if err := w.debug(w.T, pod, environment("listed")); err != nil {
					w.Errorf("an ephemeral container with a Secret of the account is refused: %v", err)
				}
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.run(world{t, c, c.namespace(t)})
			if t.Failed() && tc.reason != "" {
				t.Log(tc.reason)
			}
		})
	}
}

// reject creates the Pod, which must be invalid, and why must be in the answer.
func (c *cluster) reject(t *testing.T, namespace string, pod *corev1.Pod, text string) {
	t.Helper()
	_, err := c.client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), text) {
		t.Errorf("got %v, want that it is invalid: %q", err, text)
	}
}

// bare holds a Pod to having been given no token.
func bare(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	if diff := cmp.Diff([]corev1.Volume(nil), pod.Spec.Volumes, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the Pod's volumes (-want +got):\n%s", diff)
	}
	for _, container := range pod.Spec.Containers {
		if len(container.VolumeMounts) > 0 {
			t.Errorf("container %q has mounts: %v", container.Name, container.VolumeMounts)
		}
	}
}
