// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/internal/testutil"
)

func TestHandlers(t *testing.T) {
	t.Parallel()
	secret := func(name string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	}
	var objects, names []string
	onObject := OnEvery(func(obj any) {
		if secret, ok := obj.(*corev1.Secret); ok {
			objects = append(objects, "ns/"+secret.Name)
		}
	})
	onName := OnEveryName(func(name cache.ObjectName) { names = append(names, name.String()) })
	for _, handler := range []cache.ResourceEventHandler{onObject, onName} {
		handler.OnAdd(secret("come"), true)
		handler.OnUpdate(secret("old"), secret("changed"))
		handler.OnDelete(secret("gone"))
		handler.OnDelete(cache.DeletedFinalStateUnknown{Key: "ns/missed", Obj: secret("missed")})
		handler.OnDelete(cache.DeletedFinalStateUnknown{Key: "a/b/c"})
	}
	want := []string{"ns/come", "ns/changed", "ns/gone", "ns/missed"}
	testutil.Check(t, "objects", want, objects)
	testutil.Check(t, "names", want, names)

	objects = nil
	changes := OnChanges{onObject, func(obj any) bool { return obj.(*corev1.Secret).Name == "due" }}
	newer := secret("newer")
	newer.ResourceVersion = "2"
	for _, name := range []string{"idle", "due"} {
		changes.OnAdd(secret(name), true)
		changes.OnUpdate(secret(name), secret(name)) // a resync
	}
	changes.OnAdd(secret("new"), false)
	changes.OnUpdate(secret("newer"), newer)
	changes.OnDelete(secret("gone"))
	testutil.Check(t, "changes", []string{"ns/due", "ns/due", "ns/new", "ns/newer", "ns/gone"}, objects)
}
