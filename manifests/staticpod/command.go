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

// Command is a command line. Underscores in names of flags count as hyphens, as in every Kubernetes
// component.
type Command []string

// CommandOf returns the command lines of all containers of a Pod, nil of none.
func CommandOf(pod *corev1.Pod) (command Command) {
	if pod == nil {
		return nil
	}
	for _, container := range pod.Spec.Containers {
		command = slices.Concat(command, container.Command, container.Args)
	}
	return command
}

// CommandIn returns the command lines in the manifest of a Pod, nil if it is none.
func CommandIn(manifest []byte) Command {
	var pod corev1.Pod
	if yaml.Unmarshal(manifest, &pod) != nil {
		return nil
	}
	return CommandOf(&pod)
}

// FlagName returns the name of a flag, which may have its value with it. A shorthand is a name too.
func FlagName(text string) string {
	name, _, _ := strings.Cut(text, "=")
	return strings.ReplaceAll(strings.TrimLeft(name, "-"), "_", "-")
}

// cut splits a string of a command. ok is false if it has no "=".
func cut(one string) (name, value string, ok bool) {
	_, value, ok = strings.Cut(one, "=")
	return FlagName(one), value, ok && strings.HasPrefix(one, "-")
}

// All returns all values of a flag, in order.
func (c Command) All(name string) (values []string) {
	for _, one := range c {
		if found, value, ok := cut(one); ok && found == name {
			values = append(values, value)
		}
	}
	return values
}

// Last returns the last value, which counts for a flag that is no list; "" if there is none.
func (c Command) Last(name string) string {
	values := c.All(name)
	if len(values) == 0 {
		return ""
	}
	return values[len(values)-1]
}

// List returns the elements of a list flag: later occurrences add to earlier ones.
func (c Command) List(name string) (list []string) {
	for _, value := range c.All(name) {
		list = append(list, Split(value)...)
	}
	return list
}

// Split splits a list. An empty value is an empty list.
func Split(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

// Understands refuses values of flags that All would not return as the program reads them: one that is
// missing or a string of its own, one that the kubelet expands, and a list with quotes, which pflag reads as CSV.
func (m *Manifest) Understands(names ...string) error {
	for _, one := range m.pod.Spec.Containers[0].Command[1:] {
		name, value, has := cut(one)
		switch {
		case !slices.Contains(names, name):
		case !has:
			return fmt.Errorf("its command has %s without \"=\"; a flag and its value must be one string", one)
		case strings.Contains(value, "$("):
			return fmt.Errorf("its command has %s, where the kubelet expands a variable", one)
		case strings.Contains(value, `"`):
			return fmt.Errorf("its command has %s; write its value without double quotes", one)
		}
	}
	return nil
}

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
