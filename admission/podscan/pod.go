// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package podscan

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Part is one thing that a Pod lacks.
type Part string

// The parts.
const (
	Account Part = "account"
	Token   Part = "token"
)

// Pod describes a missed Pod. Its JSON form is that of the command's output.
type Pod struct {
	Namespace string      `json:"namespace"`
	Name      string      `json:"name"`
	UID       types.UID   `json:"uid"`
	Node      string      `json:"node,omitempty"`
	Created   metav1.Time `json:"created"`
	// Owner is the controller that the Pod belongs to, nil if there is none.
	Owner *Owner `json:"owner,omitempty"`
	// Missing is not empty.
	Missing []Part `json:"missing"`
	// Uncertain: the account may not have wanted a token when the Pod was created.
	Uncertain bool `json:"uncertain,omitempty"`

	// deployment owns the ReplicaSet that owns the Pod, "" if none does.
	deployment string
}

// Owner is the controller of a Pod.
type Owner struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Name       string    `json:"name"`
	UID        types.UID `json:"uid"`
}

// String returns the usual notation.
func (o *Owner) String() string { return o.Kind + "/" + o.Name }

func (p *Pod) String() string { return p.Namespace + "/" + p.Name }

// Lacks returns Missing in words.
func (p *Pod) Lacks() string {
	words := make([]string, len(p.Missing))
	for i, part := range p.Missing {
		words[i] = string(part)
	}
	return strings.Join(words, ", ")
}

// describe converts a Pod to its description.
func describe(pod *corev1.Pod, missing []Part, uncertain bool) Pod {
	described := Pod{
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Node: pod.Spec.NodeName,
		Created: pod.CreationTimestamp, Missing: missing, Uncertain: uncertain,
	}
	if c := metav1.GetControllerOf(pod); c != nil {
		described.Owner = &Owner{APIVersion: c.APIVersion, Kind: c.Kind, Name: c.Name, UID: c.UID}
		described.deployment = deploymentOf(pod, c.Name)
	}
	return described
}
