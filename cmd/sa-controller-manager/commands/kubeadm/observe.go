// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod"
)

// defaultPort is the port of our /readyz, unless our manifest names another.
const defaultPort = 10261

// observed has the current files of the node, nil for those that do not exist.
type observed struct {
	manager  []byte
	edited   map[string][]byte // manifests, by component
	backups  map[string][]byte
	patches  map[string][]byte
	kcm      *kcm   // in a takeover
	certDir  string // of the cluster's CA, "" if it is kubeadm's default
	rendered []byte // our manifest as it should be, in a takeover that writes it
}

func (c *Config) observe() (*observed, error) {
	o := &observed{edited: map[string][]byte{}, backups: map[string][]byte{}, patches: map[string][]byte{}}
	var err error
	if o.manager, err = readIfThere(c.manifest(manager)); err != nil {
		return nil, err
	}
	if o.backups[manager], err = readIfThere(c.backup(manager)); err != nil {
		return nil, err
	}
	for _, one := range components() {
		if o.edited[one.name], err = os.ReadFile(c.manifest(one.name)); err != nil {
			return nil, fmt.Errorf("read the manifest of %s: %w; is this a control-plane node of kubeadm?", one.name, err)
		}
		if o.backups[one.name], err = readIfThere(c.backup(one.name)); err != nil {
			return nil, err
		}
		if o.patches[one.name], err = readIfThere(c.patch(one.name)); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// own returns our manifest, or its backup if the manifest is gone or damaged.
func (o *observed) own() []byte {
	if o.ownIsThere() {
		return o.manager
	}
	return o.backups[manager]
}

func (o *observed) ownIsThere() bool {
	var pod corev1.Pod
	return yaml.Unmarshal(o.manager, &pod) == nil && len(pod.Spec.Containers) > 0
}

func components() []component { return []component{controllerManagerComponent(), apiServerComponent()} }

func readIfThere(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// parsed returns the manifest of a component.
func (o *observed) parsed(one component) (*staticpod.Manifest, error) {
	m, err := staticpod.Parse(o.edited[one.name], one.name)
	if err != nil {
		return nil, fmt.Errorf("the manifest of %s: %w", one.name, err)
	}
	return m, nil
}

// ownFlag returns the last value of a flag in our manifest, "" if it is not given.
func ownFlag(manifest []byte, name string) string {
	return last(ownFlags(manifest, name))
}

// ownFlags returns all values of a flag in our manifest.
func ownFlags(manifest []byte, name string) []string {
	var pod corev1.Pod
	if yaml.Unmarshal(manifest, &pod) != nil {
		return nil
	}
	return flagsIn(podCommand(&pod), name)
}

// flagsIn returns all values of a flag.
func flagsIn(args []string, name string) []string {
	var values []string
	for _, arg := range args {
		if value, ok := strings.CutPrefix(arg, "--"+name+"="); ok {
			values = append(values, value)
		}
	}
	return values
}

// listIn returns the elements of a list flag.
func listIn(args []string, name string) []string {
	return staticpod.Split(strings.Join(flagsIn(args, name), ","))
}

func last(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[len(values)-1]
}

// ownPort returns the port of our /readyz.
func ownPort(manifest []byte) int {
	port, err := strconv.Atoi(ownFlag(manifest, "secure-port"))
	if err != nil {
		return defaultPort
	}
	return port
}
