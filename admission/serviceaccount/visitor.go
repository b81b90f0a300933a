// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import "fmt"

// usage is a kind of field that names a Secret.
type usage int

const (
	secretVolume usage = iota
	otherVolume
	environment
	environmentFrom
	pullSecret
)

const roleEphemeral = "ephemeral container"

// secretReference is one field of a Pod that names a Secret of its namespace.
type secretReference struct {
	usage  usage
	secret string // may be empty
	role   string // of the container: what messages call it
	owner  string // the name of the container or volume
	field  string // the name of the variable, or the path below the volume
	index  int    // of the pull secret
}

// secretReferences visits every field of the spec that names a Secret: volumes first,
// then containers, pull secrets last. It is the only place that knows these fields.
func (s *podSpec) secretReferences() []secretReference {
	var found []secretReference
	for i := range s.Volumes {
		found = append(found, s.Volumes[i].secretReferences()...)
	}
	for _, list := range s.containerLists() {
		for _, c := range list.containers {
			found = append(found, c.secretReferences(list.role)...)
		}
	}
	for i, pull := range s.ImagePullSecrets {
		found = append(found, secretReference{usage: pullSecret, secret: pull.Name, index: i})
	}
	return found
}

func (c *container) secretReferences(role string) []secretReference {
	var found []secretReference
	for _, env := range c.Env {
		if ref := env.ValueFrom.SecretKeyRef; ref != nil {
			found = append(found, secretReference{usage: environment, secret: ref.Name, role: role, owner: c.Name, field: env.Name})
		}
	}
	for _, source := range c.EnvFrom {
		if ref := source.SecretRef; ref != nil {
			found = append(found, secretReference{usage: environmentFrom, secret: ref.Name, role: role, owner: c.Name})
		}
	}
	return found
}

func (v *volume) secretReferences() []secretReference {
	var found []secretReference
	if v.Secret != nil {
		found = append(found, secretReference{usage: secretVolume, secret: v.Secret.SecretName, owner: v.Name})
	}
	other := func(field, secret string) {
		found = append(found, secretReference{usage: otherVolume, secret: secret, owner: v.Name, field: field})
	}
	for i, source := range v.Projected.Sources {
		if source.Secret != nil {
			other(fmt.Sprintf("projected.sources[%d].secret.name", i), source.Secret.Name)
		}
	}
	if v.AzureFile != nil {
		other("azureFile.secretName", v.AzureFile.SecretName)
	}
	if ref := v.CSI.NodePublishSecretRef; ref != nil {
		other("csi.nodePublishSecretRef.name", ref.Name)
	}
	for _, source := range v.secretRefs() {
		if source.ref.SecretRef != nil {
			other(source.kind+".secretRef.name", source.ref.SecretRef.Name)
		}
	}
	return found
}

type kindOfVolume struct {
	kind string
	ref  secretRef
}

// secretRefs are the kinds of volume whose Secret is in a member called secretRef.
func (v *volume) secretRefs() []kindOfVolume {
	return []kindOfVolume{
		{"cephfs", v.CephFS},
		{"cinder", v.Cinder},
		{"flexVolume", v.FlexVolume},
		{"iscsi", v.ISCSI},
		{"rbd", v.RBD},
		{"scaleIO", v.ScaleIO},
		{"storageos", v.StorageOS},
	}
}
