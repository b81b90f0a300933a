// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package informers

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/internal/testutil"
)

// fieldsV1 as kube-apiserver writes them.
const (
	oneReference = `{"f:secrets":{".":{},"k:{\"name\":\"robot-token-x2x9z\"}":{}}}`
	labelFields  = `{"f:metadata":{"f:annotations":{".":{},"f:team":{}},"f:labels":{".":{},"f:app":{}}}}`
)

func wrote(manager, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(fields),
	}
}

func account(entries ...metav1.ManagedFieldsEntry) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "robot", UID: accountUID, ResourceVersion: "3", Finalizers: []string{"example.com/wait"},
			Labels: map[string]string{"app": "shop"}, Annotations: map[string]string{"team": "blue"}, ManagedFields: entries,
		},
		Secrets:          []corev1.ObjectReference{{Name: "robot-token-x2x9z"}},
		ImagePullSecrets: []corev1.LocalObjectReference{{Name: "registry"}},
	}
}

func TestTrimNamespace(t *testing.T) {
	t.Parallel()
	now := metav1.Now()
	got, err := trimNamespace(&corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{
			Name: "shop", UID: "namespace-uid", ResourceVersion: "4", DeletionTimestamp: &now,
			Labels: map[string]string{"app": "shop"}, Annotations: map[string]string{"team": "blue"},
			ManagedFields: []metav1.ManagedFieldsEntry{wrote("kubectl-create", labelFields)},
		},
		Status: corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating},
	})
	testutil.Must(t, err)
	want := &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "namespace-uid", ResourceVersion: "4", DeletionTimestamp: &now},
		Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating},
	}
	testutil.Check(t, "trimmed namespace", any(want), got)
}

// client-go hands tombstones to transforms too.
func TestTransformsPassOnWhatIsNotTheirs(t *testing.T) {
	t.Parallel()
	tombstone := cache.DeletedFinalStateUnknown{Key: "shop/robot-token", Obj: tokenSecret("robot")}
	for name, transform := range map[string]cache.TransformFunc{
		"Namespace": trimNamespace, "Account": trimAccount, "TokenSecret": observeTokenSecret,
	} {
		got, err := transform(tombstone)
		if diff := cmp.Diff(any(tombstone), got); diff != "" || err != nil {
			t.Errorf("%s: tombstone after the transform (-want +got): %v\n%s", name, err, diff)
		}
	}
}
