// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package legacytokencleaner

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"sa-controller-manager/internal/paging"
)

// mountedSecrets returns the names of all Secrets that Pods of the namespace use, in any phase. The
// list asks for no resourceVersion and so gets the newest one, which all its pages have. If a page
// is requested too late, the list fails and the sync is retried.
func (c *Controller) mountedSecrets(ctx context.Context, namespace string) (sets.Set[string], error) {
	mounted := sets.New[string]()
	what := fmt.Sprintf("pods of namespace %q", namespace)
	err := paging.Each(ctx, what, c.Client.CoreV1().Pods(namespace).List, metav1.ListOptions{}, func(page *corev1.PodList) error {
		for i := range page.Items {
			VisitSecrets(&page.Items[i].Spec, func(name string) { mounted.Insert(name) })
		}
		return nil
	})
	return mounted, err
}

// VisitSecrets calls found with the name of every Secret that a Pod refers to; some
// may be empty (upstream: VisitPodSecretNames in pkg/api/v1/pod).
func VisitSecrets(pod *corev1.PodSpec, found func(string)) {
	for _, pull := range pod.ImagePullSecrets {
		found(pull.Name)
	}
	containers := slices.Concat(pod.InitContainers, pod.Containers)
	for i := range pod.EphemeralContainers {
		containers = append(containers, corev1.Container(pod.EphemeralContainers[i].EphemeralContainerCommon))
	}
	for i := range containers {
		visitEnvironment(containers[i].Env, containers[i].EnvFrom, found)
	}
	for i := range pod.Volumes {
		visitVolume(&pod.Volumes[i].VolumeSource, found)
	}
}

func visitEnvironment(variables []corev1.EnvVar, sources []corev1.EnvFromSource, found func(string)) {
	for _, variable := range variables {
		if variable.ValueFrom != nil && variable.ValueFrom.SecretKeyRef != nil {
			found(variable.ValueFrom.SecretKeyRef.Name)
		}
	}
	for _, source := range sources {
		if source.SecretRef != nil {
			found(source.SecretRef.Name)
		}
	}
}

// visitVolume relies on API validation: a volume has one source.
func visitVolume(volume *corev1.VolumeSource, found func(string)) {
	switch {
	case volume.Secret != nil:
		found(volume.Secret.SecretName)
	case volume.Projected != nil:
		for _, source := range volume.Projected.Sources {
			if source.Secret != nil {
				found(source.Secret.Name)
			}
		}
	case volume.AzureFile != nil:
		found(volume.AzureFile.SecretName)
	}
	for _, ref := range []*corev1.LocalObjectReference{
		ptr.Deref(volume.CSI, corev1.CSIVolumeSource{}).NodePublishSecretRef,
		ptr.Deref(volume.CephFS, corev1.CephFSVolumeSource{}).SecretRef,
		ptr.Deref(volume.Cinder, corev1.CinderVolumeSource{}).SecretRef,
		ptr.Deref(volume.FlexVolume, corev1.FlexVolumeSource{}).SecretRef,
		ptr.Deref(volume.ISCSI, corev1.ISCSIVolumeSource{}).SecretRef,
		ptr.Deref(volume.RBD, corev1.RBDVolumeSource{}).SecretRef,
		ptr.Deref(volume.ScaleIO, corev1.ScaleIOVolumeSource{}).SecretRef,
		ptr.Deref(volume.StorageOS, corev1.StorageOSVolumeSource{}).SecretRef,
	} {
		if ref != nil {
			found(ref.Name)
		}
	}
}
