// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/admission"
	"sa-controller-manager/internal/podsecrets"
)

// edits collects the changes of a Pod, both as JSON patch operations and in the decoded Pod, so
// that later decisions see the changed Pod. Values are appended to lists; a list that is missing or
// null is added as a whole.
type edits struct {
	pod        *pod
	operations []admission.PatchOperation
	err        error
}

func newEdits(pod *pod) *edits {
	e := &edits{pod: pod}
	if pod.lacksSpec {
		e.add("/spec", jsontext.Value("{}"))
	}
	return e
}

// result returns the patch.
func (e *edits) result() ([]admission.PatchOperation, error) { return e.operations, e.err }

// setAccount sets the field under both of its names. kube-apiserver does so when it converts a Pod
// (k8s.io/kubernetes pkg/apis/core/v1/conversion.go), but not between two webhooks.
func (e *edits) setAccount(name string) {
	spec := e.pod.Spec
	encoded := e.encode(name)
	if spec.ServiceAccountName != name {
		e.add("/spec/serviceAccountName", encoded)
	}
	if spec.ServiceAccount != name {
		e.add("/spec/serviceAccount", encoded)
	}
	spec.ServiceAccountName, spec.ServiceAccount = name, name
}

func (e *edits) addVolume(v addedVolume) {
	spec := e.pod.Spec
	e.appendTo("/spec/volumes", spec.Volumes != nil, e.encode(&v))
	decoded := podsecrets.Volume{Name: v.Name}
	if v.Secret != nil {
		decoded.Secret = &podsecrets.SecretName{SecretName: v.Secret.SecretName}
	}
	spec.Volumes = append(spec.Volumes, decoded)
}

// addMount adds a mount to the container at index of list.
func (e *edits) addMount(list podsecrets.List, index int, mount podsecrets.Mount, encoded jsontext.Value) {
	c := list.Containers[index]
	e.appendTo("/spec/"+list.Field+"/"+strconv.Itoa(index)+"/volumeMounts", c.VolumeMounts != nil, encoded)
	c.VolumeMounts = append(c.VolumeMounts, mount)
}

// addPullSecrets adds the pull secrets of the account to a Pod that has none.
func (e *edits) addPullSecrets(references []corev1.LocalObjectReference) {
	const path = "/spec/imagePullSecrets"
	spec := e.pod.Spec
	whole := spec.ImagePullSecrets == nil && len(references) > 0
	if whole {
		e.add(path, e.encode(references)) // in one operation: a user may have given the account any number
	}
	for _, reference := range references {
		if !whole {
			e.add(path+"/-", e.encode(&reference))
		}
		spec.ImagePullSecrets = append(spec.ImagePullSecrets, podsecrets.Named{Name: reference.Name})
	}
}

// appendTo appends value to the list at path, which it creates if it does not exist.
func (e *edits) appendTo(path string, exists bool, value jsontext.Value) {
	if exists {
		e.add(path+"/-", value)
		return
	}
	e.add(path, slices.Concat([]byte{'['}, value, []byte{']'}))
}

// add sets the field at path, whether it exists or not (RFC 6902, section 4.1).
func (e *edits) add(path string, value []byte) {
	e.operations = append(e.operations, admission.PatchOperation{Op: "add", Path: path, Value: value})
}

// encode returns value as JSON, and keeps the error for result.
func (e *edits) encode(value any) jsontext.Value {
	encoded, err := json.Marshal(value)
	e.err = cmp.Or(e.err, err)
	return encoded
}
