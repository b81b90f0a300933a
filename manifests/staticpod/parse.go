// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package staticpod

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// Manifest is a parsed manifest of a static pod.
type Manifest struct {
	data    []byte
	json    []byte     // data as JSON, with sorted keys
	pod     corev1.Pod // the fields that this version knows
	program string
}

// Parse reads the manifest of a Pod whose one container runs program, which is the base
// name of the command's first string.
func Parse(data []byte, program string) (*Manifest, error) {
	if err := oneDocument(data); err != nil {
		return nil, err
	}
	m := &Manifest{data: data, program: program}
	var err error
	if m.json, err = yaml.YAMLToJSONStrict(data); err != nil {
		return nil, fmt.Errorf("it is not YAML of an object: %w", err)
	}
	if err := json.Unmarshal(m.json, &m.pod); err != nil {
		return nil, fmt.Errorf("it is not a Pod: %w", err)
	}
	if m.pod.Kind != "Pod" {
		return nil, fmt.Errorf("its kind is %q, want \"Pod\"", m.pod.Kind)
	}
	if n := len(m.pod.Spec.Containers); n != 1 {
		return nil, fmt.Errorf("it has %d containers, want one", n)
	}
	return m, errors.Join(m.checkCommand(), check(&m.pod.Spec))
}

// oneDocument counts: other readers take the first document and ignore the rest.
func oneDocument(data []byte) error {
	decoder := yamlv3.NewDecoder(bytes.NewReader(data))
	var document yamlv3.Node
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return errors.New("it is empty")
	} else if err != nil {
		return fmt.Errorf("it is not YAML: %w", err)
	}
	if err := decoder.Decode(&document); !errors.Is(err, io.EOF) {
		return errors.New("it has more than one YAML document")
	}
	return nil
}

// checkCommand refuses a command whose strings are not all flags of the program.
func (m *Manifest) checkCommand() error {
	container := m.pod.Spec.Containers[0]
	switch {
	case len(container.Args) > 0:
		return errors.New("it has args; flags are expected in command alone")
	case len(container.Command) == 0:
		return errors.New("its container has no command")
	case path.Base(container.Command[0]) != m.program:
		return fmt.Errorf("its command runs %q, want %q; a shell or a wrapper around it is not understood",
			path.Base(container.Command[0]), m.program)
	case container.Image == "":
		return errors.New("its container has no image; the file may be cut off")
	}
	for _, one := range container.Command[1:] {
		if !strings.HasPrefix(one, "-") || one == "--" {
			return fmt.Errorf("its command has the string %q, which is no flag; a flag and its value must be one string, --flag=value", one)
		}
	}
	return nil
}

// check returns why kube-apiserver, and so a kubelet, would refuse the volumes of a Pod.
func check(spec *corev1.PodSpec) error {
	volumes := map[string]bool{}
	for _, volume := range spec.Volumes {
		if volumes[volume.Name] {
			return fmt.Errorf("it has two volumes called %q; rename the one that is yours", volume.Name)
		}
		volumes[volume.Name] = true
	}
	for _, container := range slices.Concat(spec.InitContainers, spec.Containers) {
		at := map[string]string{}
		for _, mount := range container.VolumeMounts {
			directory := path.Clean(mount.MountPath)
			if !volumes[mount.Name] {
				return fmt.Errorf("it has no volume %s, which its container mounts at %s; take the mount out, or the file may be cut off",
					mount.Name, directory)
			}
			if other, twice := at[directory]; twice {
				return fmt.Errorf("its volumeMounts %s and %s are both at %s; take yours out", other, mount.Name, directory)
			}
			at[directory] = mount.Name
		}
	}
	return nil
}

// Image is the container's image.
func (m *Manifest) Image() string { return m.pod.Spec.Containers[0].Image }

// Bytes is the manifest as it was given to Parse.
func (m *Manifest) Bytes() []byte { return m.data }

// Command is the container's command.
func (m *Manifest) Command() Command { return slices.Clone(m.pod.Spec.Containers[0].Command) }

// Annotations are not to be changed.
func (m *Manifest) Annotations() map[string]string { return m.pod.Annotations }

// Spec is not to be changed.
func (m *Manifest) Spec() *corev1.PodSpec { return &m.pod.Spec }

// Equal reports whether two manifests are equal but for comments and the order of keys.
func (m *Manifest) Equal(other *Manifest) bool { return bytes.Equal(m.json, other.json) }

// Plain reports whether it is printed as kubeadm prints it, so that a patch loses no comment.
func (m *Manifest) Plain() bool {
	data, err := yaml.JSONToYAML(m.json)
	return err == nil && bytes.Equal(data, m.data)
}

// Operation is one of a JSON patch (RFC 6902).
type Operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// Apply returns the manifest with a patch applied, or m itself if the patch is empty.
func (m *Manifest) Apply(patch []Operation) (*Manifest, error) {
	if len(patch) == 0 {
		return m, nil
	}
	encoded, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("encode the patch: %w", err)
	}
	decoded, err := jsonpatch.DecodePatch(encoded)
	if err != nil {
		return nil, fmt.Errorf("decode the patch: %w", err)
	}
	patched, err := decoded.Apply(m.json)
	if err != nil {
		return nil, fmt.Errorf("it lacks what is to be changed: %w", err)
	}
	data, err := yaml.JSONToYAML(patched)
	if err != nil {
		return nil, fmt.Errorf("print it: %w", err)
	}
	after, err := Parse(data, m.program)
	if err == nil && !jsonpatch.Equal(patched, after.json) {
		err = errors.New("it would not be read as it is printed")
	}
	return after, err
}
