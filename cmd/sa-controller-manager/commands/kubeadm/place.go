// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod"
)

// checkBinary refuses a binary that a reboot may remove or that another user than root may replace: it
// runs as root, and without it Pods are refused.
func (c *Config) checkBinary() error {
	if c.Binary == "" {
		return nil
	}
	why, err := unsafePlace(c.onNode("/"), c.onNode(c.Binary))
	if err != nil {
		return fmt.Errorf("--binary: %w", err)
	}
	if why == "" {
		return nil
	}
	return fmt.Errorf("--binary %s: %s; it must survive a reboot and be writable by root only: install -m 755 %s /usr/local/bin/%s, then --binary=/usr/local/bin/%s",
		c.Binary, why, c.Binary, manager, manager)
}

// unsafePlace returns what is wrong with the path of a file on the node that is mounted at root, "" if
// nothing is.
func unsafePlace(root, file string) (why string, err error) {
	if root, err = filepath.EvalSymlinks(root); err != nil {
		return "", err
	}
	if file, err = filepath.EvalSymlinks(file); err != nil {
		return "", err // it names the path
	}
	name := "/" + strings.TrimPrefix(strings.TrimPrefix(file, root), "/")
	for _, gone := range []string{"/tmp", "/var/tmp", "/run", "/dev", "/home", "/root"} {
		if staticpod.Below(name, gone) {
			return "it is below " + gone, nil
		}
	}
	for at := name; ; at = path.Dir(at) {
		info, err := os.Stat(filepath.Join(root, at))
		if err != nil {
			return "", err
		}
		if why := writableByOthers(info); why != "" {
			return at + " " + why, nil
		}
		if at == "/" {
			return "", nil
		}
	}
}

// checkStrayManifests refuses further manifests of the three components. The kubelet takes every file
// for a manifest whose name does not begin with a dot, and would run both.
func (c *Config) checkStrayManifests() error {
	entries, err := os.ReadDir(c.ManifestsDir)
	if err != nil {
		return err // it names the path
	}
	for _, entry := range entries {
		if entry.IsDir() || strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(c.ManifestsDir, entry.Name()))
		if err != nil {
			return err
		}
		var pod corev1.Pod
		if yaml.Unmarshal(data, &pod) != nil {
			continue // the kubelet does not run that
		}
		if of := runs(&pod); of != "" && entry.Name() != of+".yaml" {
			return fmt.Errorf("%s is a manifest of %s too, and the kubelet runs copies as well; move it out of %s",
				filepath.Join(c.ManifestsDir, entry.Name()), of, c.ManifestsDir)
		}
	}
	return nil
}

// runs returns which of the three components a Pod is, "" if none.
func runs(pod *corev1.Pod) string {
	names := []string{manager, controllerManager, apiServer}
	for _, container := range pod.Spec.Containers {
		if len(container.Command) > 0 && slices.Contains(names, path.Base(container.Command[0])) {
			return path.Base(container.Command[0])
		}
	}
	if slices.Contains(names, pod.Name) {
		return pod.Name
	}
	return ""
}
