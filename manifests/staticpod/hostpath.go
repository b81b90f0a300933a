// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package staticpod

import (
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// HostPath returns the path on the host of a file that the command names.
func (m *Manifest) HostPath(file string) (string, error) {
	if !path.IsAbs(file) {
		return "", fmt.Errorf("%s is not an absolute path", file)
	}
	file = path.Clean(file)
	var mount corev1.VolumeMount
	for _, one := range m.pod.Spec.Containers[0].VolumeMounts {
		// The innermost of nested mounts hides the others.
		if Below(file, one.MountPath) && len(path.Clean(one.MountPath)) > len(mount.MountPath) {
			mount, mount.MountPath = one, path.Clean(one.MountPath)
		}
	}
	if mount.Name == "" {
		return "", fmt.Errorf("%s is in none of its volumeMounts", file)
	}
	i := slices.IndexFunc(m.pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })
	if i < 0 || m.pod.Spec.Volumes[i].HostPath == nil || mount.SubPathExpr != "" {
		return "", fmt.Errorf("%s is in its volume %s, which is not a plain hostPath", file, mount.Name)
	}
	return path.Join(m.pod.Spec.Volumes[i].HostPath.Path, mount.SubPath, strings.TrimPrefix(file, mount.MountPath)), nil
}

// Below reports whether a path is a directory or below it.
func Below(file, directory string) bool {
	file, directory = path.Clean(file), path.Clean(directory)
	return file == directory || directory == "/" || strings.HasPrefix(file, directory+"/")
}
