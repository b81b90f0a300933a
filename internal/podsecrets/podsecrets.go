// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podsecrets finds the Secrets that a Pod refers to. No other code knows the fields that name one.
package podsecrets

import (
	"encoding/json" // go-json-experiment refuses strings that are not UTF-8

	corev1 "k8s.io/api/core/v1"
)

// Kind is the kind of a field that names a Secret.
type Kind int

// The kinds of fields.
const (
	SecretVolume    Kind = iota
	OtherVolume          // of another type than secret
	Environment          // one variable
	EnvironmentFrom      // all keys of the Secret
	PullSecret
)

// RoleEphemeral is the role of an ephemeral container.
const RoleEphemeral = "ephemeral container"

// Reference is one field of a Pod that names a Secret of its namespace.
type Reference struct {
	Kind      Kind
	Secret    string // may be empty
	Role      string // of the container, as in messages
	Container string
	Variable  string
	Index     int // of the pull secret
}

// Spec holds the fields of a v1 PodSpec that can name a Secret. To decode it costs less memory than a PodSpec, and no time
// for quantities: the admission webhook does so with whatever it is sent.
type Spec struct {
	Volumes             []Volume     `json:"volumes"`
	InitContainers      []*Container `json:"initContainers"`
	Containers          []*Container `json:"containers"`
	EphemeralContainers []*Container `json:"ephemeralContainers"`
	ImagePullSecrets    []Named      `json:"imagePullSecrets"`
}

// Container is a container of any of the three lists.
type Container struct {
	Name         string      `json:"name"`
	Env          []variable  `json:"env"`
	EnvFrom      []secretRef `json:"envFrom"`
	VolumeMounts []Mount     `json:"volumeMounts"`
}

type variable struct {
	Name      string `json:"name"`
	ValueFrom struct {
		SecretKeyRef *Named `json:"secretKeyRef"`
	} `json:"valueFrom"`
}

// Mount is a mount of a volume. It names no Secret; the plugin reads it.
type Mount struct {
	Name      string `json:"name"`
	MountPath string `json:"mountPath"`
}

// Volume has a field for every volume type that can name a Secret.
type Volume struct {
	Name      string      `json:"name"`
	Secret    *SecretName `json:"secret"`
	Projected struct {
		Sources []Projection `json:"sources"`
	} `json:"projected"`
	AzureFile  *SecretName `json:"azureFile"`
	CephFS     secretRef   `json:"cephfs"`
	Cinder     secretRef   `json:"cinder"`
	FlexVolume secretRef   `json:"flexVolume"`
	ISCSI      secretRef   `json:"iscsi"`
	RBD        secretRef   `json:"rbd"`
	ScaleIO    secretRef   `json:"scaleIO"`
	StorageOS  secretRef   `json:"storageos"`
	CSI        struct {
		NodePublishSecretRef *Named `json:"nodePublishSecretRef"`
	} `json:"csi"`
}

// Projection is a source of a projected volume.
type Projection struct {
	Secret              *Named    `json:"secret"`
	ServiceAccountToken *struct{} `json:"serviceAccountToken"`
}

// Named is a reference by the field "name".
type Named struct {
	Name string `json:"name"`
}

// SecretName is a reference by the field "secretName".
type SecretName struct {
	SecretName string `json:"secretName"`
}

type secretRef struct {
	SecretRef *Named `json:"secretRef"`
}

// List is one of the three lists of containers.
type List struct {
	Field      string // of the spec
	Role       string // of a container, as in messages
	Containers []*Container
}

// Lists returns the lists in the order in which upstream checks them.
func (s *Spec) Lists() []List {
	return []List{
		{"initContainers", "init container", s.InitContainers},
		{"containers", "container", s.Containers},
		{"ephemeralContainers", RoleEphemeral, s.EphemeralContainers},
	}
}

// Names returns the names of all Secrets that the Pod refers to; some may be empty or repeated. It writes and reads the Pod
// as JSON, 0.1 s for the largest that etcd stores: only the cleaner and a person with an audit wait for that.
func Names(pod *corev1.PodSpec) ([]string, error) {
	encoded, err := json.Marshal(pod)
	if err != nil {
		return nil, err
	}
	var spec Spec
	if err := json.Unmarshal(encoded, &spec); err != nil {
		return nil, err
	}
	var names []string
	for _, reference := range spec.References() {
		names = append(names, reference.Secret)
	}
	return names, nil
}

// References returns every field that names a Secret: volumes first, then containers, pull secrets last. No container
// may be nil. Upstream has the fields in VisitPodSecretNames of pkg/api/v1/pod.
func (s *Spec) References() []Reference {
	var found []Reference
	for i := range s.Volumes {
		found = append(found, s.Volumes[i].references()...)
	}
	for _, list := range s.Lists() {
		for _, c := range list.Containers {
			found = append(found, c.references(list.Role)...)
		}
	}
	for i, pull := range s.ImagePullSecrets {
		found = append(found, Reference{Kind: PullSecret, Secret: pull.Name, Index: i})
	}
	return found
}

func (c *Container) references(role string) []Reference {
	var found []Reference
	for _, variable := range c.Env {
		if ref := variable.ValueFrom.SecretKeyRef; ref != nil {
			found = append(found, Reference{Kind: Environment, Secret: ref.Name, Role: role, Container: c.Name, Variable: variable.Name})
		}
	}
	for _, source := range c.EnvFrom {
		if ref := source.SecretRef; ref != nil {
			found = append(found, Reference{Kind: EnvironmentFrom, Secret: ref.Name, Role: role, Container: c.Name})
		}
	}
	return found
}

func (v *Volume) references() []Reference {
	var found []Reference
	if v.Secret != nil {
		found = append(found, Reference{Kind: SecretVolume, Secret: v.Secret.SecretName})
	}
	others := []*Named{
		v.CSI.NodePublishSecretRef, v.CephFS.SecretRef, v.Cinder.SecretRef, v.FlexVolume.SecretRef, v.ISCSI.SecretRef,
		v.RBD.SecretRef, v.ScaleIO.SecretRef, v.StorageOS.SecretRef,
	}
	for _, source := range v.Projected.Sources {
		others = append(others, source.Secret)
	}
	if v.AzureFile != nil {
		others = append(others, &Named{v.AzureFile.SecretName})
	}
	for _, other := range others {
		if other != nil {
			found = append(found, Reference{Kind: OtherVolume, Secret: other.Name})
		}
	}
	return found
}
