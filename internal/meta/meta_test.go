// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package meta

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	corev1listers "k8s.io/client-go/listers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/internal/testutil"
)

func TestLiveAndCachedAccount(t *testing.T) {
	t.Parallel()
	robot := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "robot", UID: "robot-uid"}}
	client, indexer := fake.NewClientset(robot), cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	testutil.Must(t, indexer.Add(robot))
	lister := corev1listers.NewServiceAccountLister(indexer)
	for name, there := range map[string]bool{"robot": true, "nobody": false} {
		live, err := LiveAccount(t.Context(), client, cache.NewObjectName("shop", name))
		if err != nil || (live != nil) != there || there && live.UID != "robot-uid" {
			t.Errorf("live %s: %v, %v", name, live, err)
		}
		if cached := CachedAccount(lister, cache.NewObjectName("shop", name)); (cached == robot) != there || !there && cached != nil {
			t.Errorf("cached %s: %v", name, cached)
		}
	}
	errBoom := errors.New("boom")
	client.PrependReactor("get", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errBoom })
	live, err := LiveAccount(t.Context(), client, cache.NewObjectName("shop", "robot"))
	if live != nil || !errors.Is(err, errBoom) || err.Error() != "look up service account shop/robot: boom" {
		t.Errorf("when nobody can say: %v, %v", live, err)
	}
}

func TestPreconditions(t *testing.T) {
	t.Parallel()
	object := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "token", UID: "uid", ResourceVersion: "7"}}
	deletion, err := json.Marshal(metav1.DeleteOptions{Preconditions: Preconditions(object)})
	if err != nil || string(deletion) != `{"preconditions":{"uid":"uid","resourceVersion":"7"}}` {
		t.Errorf("delete: %s, %v", deletion, err)
	}
	metadata := PatchOf(object)
	metadata.Labels = map[string]*string{"set": new("yes"), "gone": nil}
	patch, err := json.Marshal(metadata)
	if err != nil || string(patch) != `{"uid":"uid","resourceVersion":"7","labels":{"gone":null,"set":"yes"}}` {
		t.Errorf("patch: %s, %v", patch, err)
	}
}

func TestRetryWrite(t *testing.T) {
	t.Parallel()
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "secrets"}, "robot", errors.New("changed"))
	errBoom := errors.New("boom")
	for name, tc := range map[string]struct {
		answers []error
		want    error
	}{
		"AtOnce":        {[]error{nil}, nil},
		"AfterConflict": {[]error{conflict, nil}, nil},
		"Conflicts":     {[]error{conflict, conflict, conflict, conflict}, conflict},
		"OtherError":    {[]error{errBoom}, errBoom},
		"Timeout":       {[]error{conflict, context.DeadlineExceeded}, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			err := RetryWrite(apierrors.IsConflict, func() error {
				calls++
				return tc.answers[calls-1]
			})
			if !errors.Is(err, tc.want) || calls != len(tc.answers) {
				t.Errorf("got %v after %d calls, want %v after %d", err, calls, tc.want, len(tc.answers))
			}
		})
	}
}
