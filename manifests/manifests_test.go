// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"strings"
	"testing"

	"sa-controller-manager/internal/testutil"
)

func TestPermissions(t *testing.T) {
	t.Parallel()
	objects := testutil.Get(Permissions(true, false))(t)
	paths := map[string]bool{}
	for _, object := range objects {
		path := object.Path()
		testutil.Expect(t, !paths[path], "%s is there twice", object)
		paths[path] = true
		testutil.CheckContains(t, "whose it is", "sa-controller-manager", object.String())
	}
	for _, want := range []string{
		"/apis/rbac.authorization.k8s.io/v1/clusterroles/system:sa-controller-manager:token",
		"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/system:sa-controller-manager:token",
		"/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/roles/system:sa-controller-manager:leader-election",
		"/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/rolebindings/system:sa-controller-manager:leader-election",
		"/api/v1/namespaces/kube-system/secrets/sa-controller-manager-root-ca",
		"/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/sa-controller-manager",
	} {
		testutil.Expect(t, paths[want], "no object at %s", want)
	}
}

// TestPermissionsOfTheSigner: all of its directory, and no Secret but that of the key ring.
func TestPermissionsOfTheSigner(t *testing.T) {
	t.Parallel()
	objects := testutil.Get(Permissions(false, true))(t)
	var got []string
	for _, object := range objects {
		got = append(got, strings.ReplaceAll(object.String(), "system:sa-controller-manager:", ""))
	}
	testutil.Check(t, "objects", []string{
		"Role kube-system/signer", "RoleBinding kube-system/signer", "ClusterRole signer", "ClusterRoleBinding signer",
		"ClusterRole secure-serving", "ClusterRoleBinding secure-serving", "Role kube-system/secure-serving",
		"RoleBinding kube-system/secure-serving", "Secret kube-system/sa-controller-manager-key-ring",
	}, got)
}
