// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package informers

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
)

func TestLiveAccount(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "robot", UID: accountUID}})
	if live, err := LiveAccount(t.Context(), client, cache.NewObjectName("shop", "robot")); err != nil || live == nil || live.UID != accountUID {
		t.Errorf("one that is there: %v, %v", live, err)
	}
	if live, err := LiveAccount(t.Context(), client, cache.NewObjectName("shop", "nobody")); err != nil || live != nil {
		t.Errorf("one that is not: %v, %v", live, err)
	}
	errBoom := errors.New("boom")
	client.PrependReactor("get", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errBoom })
	live, err := LiveAccount(t.Context(), client, cache.NewObjectName("shop", "robot"))
	if live != nil || !errors.Is(err, errBoom) || err.Error() != "look up service account shop/robot: boom" {
		t.Errorf("when nobody can say: %v, %v", live, err)
	}
}
