// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package manifests holds what runs sa-controller-manager in a cluster, for kustomize
// and, embedded, for the binary's own commands: there is one source of each object.
//
// The directories are for people: permissions, base, overlays and kind. What the functions
// return is built from the files of the same name, comments included. The roles below
// permissions are generated from the table in app/permissions. Nothing here talks to an
// API server.
//
// The static pod runs as root, as kubeadm's own do, because the key files are root's. Its second
// container alone sees the CA's key and renews the identity, so that this key stays out of the
// process that reads admission requests.
//
// The Deployment's Pods start when no replica answers: their account and token are spelled out, and
// their CA and key come from a Secret of their own. Its roles have names of their own, too: a cluster
// that changes from the static pod has both for a while, and equal names would take permissions from
// the one that runs.
package manifests

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// User is whom the permissions are for: the common name of the client certificate.
const User = "system:sa-controller-manager"

//go:embed permissions/*.yaml permissions/policy/*.yaml permissions/state/*.yaml permissions/token-secrets/*.yaml
//go:embed permissions/completion/*.yaml permissions/signer/*.yaml
var permissions embed.FS

// StaticPolicy is the file for staticManifestsDir of the plugin MutatingAdmissionPolicy.
//
//go:embed static/policy.yaml
var StaticPolicy []byte

// Object is one object of the Kubernetes API, as YAML with comments.
type Object struct {
	APIVersion, Kind string
	// Namespace is empty for an object without one.
	Namespace, Name string
	// YAML can be created as it is.
	YAML []byte
}

// Path is where the API server has the object: what rest.Request.AbsPath takes.
func (o Object) Path() string {
	resource, _ := meta.UnsafeGuessKindToResource(schema.FromAPIVersionAndKind(o.APIVersion, o.Kind))
	root := "/apis"
	if !strings.Contains(o.APIVersion, "/") {
		root = "/api" // of the group without a name
	}
	parts := []string{root, o.APIVersion}
	if o.Namespace != "" {
		parts = append(parts, "namespaces", o.Namespace)
	}
	return path.Join(append(parts, resource.Resource, url.PathEscape(o.Name))...)
}

// String names the object for a person.
func (o Object) String() string {
	return o.Kind + " " + path.Join(o.Namespace, o.Name)
}

// Permissions returns what grants User all that the process may need: roles, bindings and
// FlowSchemas, and the Secrets that it may write but not create; and the policies. Only with
// createSecrets it may make token Secrets. With onlySigner it is what SignerCommand needs. The order does not matter.
func Permissions(createSecrets, onlySigner bool) ([]Object, error) {
	patterns := []string{"permissions/*.yaml", "permissions/policy/*.yaml", "permissions/state/*.yaml"}
	switch {
	case onlySigner:
		patterns = []string{"permissions/signer/*.yaml", "permissions/state/key-ring.yaml"}
	case createSecrets:
		patterns = append(patterns, "permissions/token-secrets/*.yaml")
	}
	var all []Object
	for _, pattern := range patterns {
		found, err := objects(permissions, pattern)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// State returns the Secrets among the permissions, which the process may update but not create.
func State() ([]Object, error) { return objects(permissions, "permissions/state/*.yaml") }

// PodPolicy returns the policy that refuses Pods without an account, which is one of the permissions, and its binding.
func PodPolicy() ([]Object, error) { return objects(permissions, "permissions/policy/*.yaml") }

// Completion returns the policy that completes Pods, and what belongs to it: for Kubernetes 1.36 and newer.
func Completion() ([]Object, error) { return objects(permissions, "permissions/completion/*.yaml") }

// objects reads the YAML files whose names match a pattern.
func objects(files fs.FS, pattern string) ([]Object, error) {
	names, err := fs.Glob(files, pattern)
	if err != nil {
		return nil, err
	}
	var found []Object
	for _, name := range names {
		if path.Base(name) == "kustomization.yaml" {
			continue
		}
		data, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		for document := range bytes.SplitSeq(data, []byte("\n---\n")) {
			var head metav1.PartialObjectMetadata
			if err := yaml.Unmarshal(document, &head); err != nil {
				return nil, fmt.Errorf("read manifest %s: %w", name, err)
			}
			found = append(found, Object{head.APIVersion, head.Kind, head.Namespace, head.Name, document})
		}
	}
	return found, nil
}
