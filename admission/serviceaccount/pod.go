// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/admission"
)

// podKind is what requests say of all that the plugin decides about.
var podKind = metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}

// pod holds the members of a v1 Pod that decisions depend on. Names match as in
// kube-apiserver, with their case.
type pod struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name        string            `json:"name"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec *podSpec `json:"spec"`

	// lacksSpec: the Pod has no spec, or null; Spec is an empty one then.
	lacksSpec bool
}

type podSpec struct {
	ServiceAccountName string `json:"serviceAccountName"`
	// ServiceAccount is the deprecated name of the field above.
	ServiceAccount               string       `json:"serviceAccount"`
	AutomountServiceAccountToken *bool        `json:"automountServiceAccountToken"`
	Volumes                      []volume     `json:"volumes"`
	InitContainers               []*container `json:"initContainers"`
	Containers                   []*container `json:"containers"`
	EphemeralContainers          []*container `json:"ephemeralContainers"`
	ImagePullSecrets             []named      `json:"imagePullSecrets"`
}

type container struct {
	Name         string        `json:"name"`
	Env          []envVar      `json:"env"`
	EnvFrom      []secretRef   `json:"envFrom"`
	VolumeMounts []volumeMount `json:"volumeMounts"`
}

type envVar struct {
	Name      string `json:"name"`
	ValueFrom struct {
		SecretKeyRef *named `json:"secretKeyRef"`
	} `json:"valueFrom"`
}

type volumeMount struct {
	Name      string `json:"name"`
	MountPath string `json:"mountPath"`
}

// volume has one member for every kind of volume that can name a Secret.
type volume struct {
	Name      string      `json:"name"`
	Secret    *secretName `json:"secret"`
	Projected struct {
		Sources []projection `json:"sources"`
	} `json:"projected"`
	AzureFile  *secretName `json:"azureFile"`
	CephFS     secretRef   `json:"cephfs"`
	Cinder     secretRef   `json:"cinder"`
	FlexVolume secretRef   `json:"flexVolume"`
	ISCSI      secretRef   `json:"iscsi"`
	RBD        secretRef   `json:"rbd"`
	ScaleIO    secretRef   `json:"scaleIO"`
	StorageOS  secretRef   `json:"storageos"`
	CSI        struct {
		NodePublishSecretRef *named `json:"nodePublishSecretRef"`
	} `json:"csi"`
}

type projection struct {
	Secret              *named    `json:"secret"`
	ServiceAccountToken *struct{} `json:"serviceAccountToken"`
}

type named struct {
	Name string `json:"name"`
}

type secretName struct {
	SecretName string `json:"secretName"`
}

type secretRef struct {
	SecretRef *named `json:"secretRef"`
}

// decodePod reads a Pod's JSON, null gives nil. Containers that are null are refused, too.
func decodePod(object []byte) (*pod, error) {
	var p *pod
	if err := admission.Decode(object, &p); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the object is not a Pod: %v", err))
	}
	if p == nil {
		return nil, nil
	}
	if p.APIVersion+p.Kind != "" && (p.APIVersion != podKind.Version || p.Kind != podKind.Kind) {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the object is apiVersion %.100q, kind %.100q, and request.kind says %s %s",
			p.APIVersion, p.Kind, podKind.Version, podKind.Kind))
	}
	if p.Spec == nil {
		p.Spec, p.lacksSpec = &podSpec{}, true
	}
	return p, p.Spec.checkContainers()
}

func (s *podSpec) checkContainers() error {
	for _, list := range s.containerLists() {
		for i, c := range list.containers {
			if c == nil {
				return apierrors.NewBadRequest(fmt.Sprintf("the object is not a Pod: spec.%s[%d] is null", list.field, i))
			}
		}
	}
	return nil
}

// containerList is one of the three lists of containers that a Pod has.
type containerList struct {
	field      string // its name in the spec
	role       string // what messages call its members
	containers []*container
}

// containerLists are in the order in which upstream looks at them.
func (s *podSpec) containerLists() []containerList {
	return []containerList{
		{"initContainers", "init container", s.InitContainers},
		{"containers", "container", s.Containers},
		{"ephemeralContainers", roleEphemeral, s.EphemeralContainers},
	}
}

// accountName is the account that the Pod names, "" if none. The new field wins over
// the deprecated one (k8s.io/kubernetes pkg/apis/core/v1/conversion.go).
func (s *podSpec) accountName() string { return cmp.Or(s.ServiceAccountName, s.ServiceAccount) }

// isMirror reports whether the Pod is the API's copy of a static pod. The annotation's
// value does not matter.
func (p *pod) isMirror() bool {
	_, ok := p.Metadata.Annotations[corev1.MirrorPodAnnotationKey]
	return ok
}
