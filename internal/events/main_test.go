// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// secret refers to a Secret in the namespace shop whose UID is made from its name.
func secret(name string) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Secret", Namespace: "shop", Name: name, UID: types.UID(name + "-uid")}
}
