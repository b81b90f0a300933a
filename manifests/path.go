// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"fmt"
	"net/url"
	"path"
)

// resources has the plural of every kind that is applied by the binary.
func resources() map[string]string {
	return map[string]string{
		"ClusterRole":        "clusterroles",
		"ClusterRoleBinding": "clusterrolebindings",
		"Role":               "roles",
		"RoleBinding":        "rolebindings",
		"FlowSchema":         "flowschemas",
	}
}

// Path is where the API server has the object: what rest.Request.AbsPath takes.
func (o Object) Path() (string, error) {
	resource, known := resources()[o.Kind]
	if !known {
		return "", fmt.Errorf("%s %s: no resource is known for this kind", o.Kind, o.Name)
	}
	if o.Namespace == "" {
		return path.Join("/apis", o.APIVersion, resource, url.PathEscape(o.Name)), nil
	}
	return path.Join("/apis", o.APIVersion, "namespaces", o.Namespace, resource, url.PathEscape(o.Name)), nil
}

// String names the object for a person.
func (o Object) String() string {
	if o.Namespace == "" {
		return o.Kind + " " + o.Name
	}
	return o.Kind + " " + o.Namespace + "/" + o.Name
}
