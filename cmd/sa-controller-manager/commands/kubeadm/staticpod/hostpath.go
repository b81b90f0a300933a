// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package staticpod

import (
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// HostPath returns the path on the host of a file that the command names.
func (m *Manifest) HostPath(file string) (string, error) {
	if !path.IsAbs(file) {
		return "", fmt.Errorf("%s is not an absolute path", file)
	}
	var pod corev1.Pod
	if err := yaml.Unmarshal(m.data, &pod); err != nil {
		return "", fmt.Errorf("read its volumes: %w", err)
	}
	file = path.Clean(file)
	var mount corev1.VolumeMount
	for _, one := range pod.Spec.Containers[0].VolumeMounts {
		// The innermost of nested mounts hides the others.
		if Below(file, one.MountPath) && len(path.Clean(one.MountPath)) > len(mount.MountPath) {
			mount, mount.MountPath = one, path.Clean(one.MountPath)
		}
	}
	if mount.Name == "" {
		return "", fmt.Errorf("%s is in none of its volumeMounts", file)
	}
	i := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })
	if i < 0 || pod.Spec.Volumes[i].HostPath == nil || mount.SubPathExpr != "" {
		return "", fmt.Errorf("%s is in its volume %s, which is not a plain hostPath", file, mount.Name)
	}
	return path.Join(pod.Spec.Volumes[i].HostPath.Path, mount.SubPath, strings.TrimPrefix(file, mount.MountPath)), nil
}

// Below reports whether a path is a directory or below it.
func Below(file, directory string) bool {
	file, directory = path.Clean(file), path.Clean(directory)
	return file == directory || directory == "/" || strings.HasPrefix(file, directory+"/")
}

// Check returns why kube-apiserver, and so a kubelet, would refuse the volumes of a Pod.
func Check(manifest []byte) error {
	var pod corev1.Pod
	if err := yaml.Unmarshal(manifest, &pod); err != nil {
		return fmt.Errorf("read its volumes: %w", err)
	}
	volumes := map[string]bool{}
	for _, volume := range pod.Spec.Volumes {
		if volumes[volume.Name] {
			return fmt.Errorf("it has two volumes called %q; rename the one that is yours", volume.Name)
		}
		volumes[volume.Name] = true
	}
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		at := map[string]string{}
		for _, mount := range container.VolumeMounts {
			directory := path.Clean(mount.MountPath)
			if other, twice := at[directory]; twice {
				return fmt.Errorf("its volumeMounts %s and %s are both at %s; take yours out", other, mount.Name, directory)
			}
			at[directory] = mount.Name
		}
	}
	return nil
}
