// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"sa-controller-manager/admission"
	"sa-controller-manager/internal/podsecrets"
)

// podKind is the kind of every request that the plugin decides.
var podKind = metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}

// pod holds the fields of a v1 Pod that decisions depend on. Field names are case-sensitive, as in
// kube-apiserver.
type pod struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name        string            `json:"name"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec *podSpec `json:"spec"`

	// lacksSpec reports that spec is missing or null; Spec is empty then.
	lacksSpec bool
}

type podSpec struct {
	ServiceAccountName string `json:"serviceAccountName"`
	// ServiceAccount is the deprecated name of the field above.
	ServiceAccount               string `json:"serviceAccount"`
	AutomountServiceAccountToken *bool  `json:"automountServiceAccountToken"`

	podsecrets.Spec
}

// decodePod decodes the Pod of a request. It returns nil for null, and an error if a container is null.
func decodePod(request *admission.Request) (*pod, error) {
	var p *pod
	if err := admission.Decode(request.Object, &p); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the object is not a Pod: %v", err))
	}
	if p == nil {
		return nil, nil
	}
	if p.APIVersion+p.Kind != "" && (p.APIVersion != podKind.Version || p.Kind != podKind.Kind) {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the object has apiVersion %.100q, kind %.100q; request.kind is %s %s",
			p.APIVersion, p.Kind, podKind.Version, podKind.Kind))
	}
	if p.Spec == nil {
		p.Spec, p.lacksSpec = &podSpec{}, true
	}
	if len(p.Spec.accountName()) > validation.DNS1123SubdomainMaxLength {
		return nil, admission.Forbidden(request, fmt.Errorf("error looking up service account: its name has more than %d bytes",
			validation.DNS1123SubdomainMaxLength))
	}
	return p, p.Spec.checkContainers()
}

// maxContainers is the maximum number of containers of all kinds: the patch has an operation for each.
const maxContainers = 1000

func (s *podSpec) checkContainers() error {
	if n := len(s.InitContainers) + len(s.Containers) + len(s.EphemeralContainers); n > maxContainers {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the Pod has %d containers, at most %d are allowed", n, maxContainers))
	}
	for _, list := range s.Lists() {
		for i, c := range list.Containers {
			if c == nil {
				return apierrors.NewBadRequest(fmt.Sprintf("the object is not a Pod: spec.%s[%d] is null", list.Field, i))
			}
		}
	}
	return nil
}

// accountName returns the name of the Pod's account, "" if it has none. The new field takes
// precedence over the deprecated one (k8s.io/kubernetes pkg/apis/core/v1/conversion.go).
func (s *podSpec) accountName() string { return cmp.Or(s.ServiceAccountName, s.ServiceAccount) }

// isMirror reports whether the Pod is the API's copy of a static pod. Any value of the annotation
// counts.
func (p *pod) isMirror() bool {
	_, ok := p.Metadata.Annotations[corev1.MirrorPodAnnotationKey]
	return ok
}
