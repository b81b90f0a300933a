// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"context"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/integration/testcluster"
)

// TestRootCAOverlap changes the root CA. Until the overlap ends, clients that have what is published trust
// the old and the new one.
func TestRootCAOverlap(t *testing.T) {
	c := withOwnRootCAs(t)
	old, next := newRootCA(t), newRootCA(t)
	ca := caFile(t, old)
	c.Manage(t, "--token-secrets=manual", "--root-ca-file="+ca.Path, "--root-ca-overlap=5s")
	namespace := c.Namespace(t)
	c.CreateAccount(t, namespace, "someone")
	c.CreateSecret(t, testcluster.TokenSecret(namespace, "mine", "someone"))
	c.AwaitRootCA(t, namespace, old)
	c.AwaitSecretCA(t, namespace, "mine", old)
	published := recordRootCA(t, c, namespace)

	ca.Replace(t, []byte(next))
	union := next + old
	c.AwaitRootCA(t, namespace, union)
	c.AwaitSecretCA(t, namespace, "mine", union)
	c.AwaitEvent(t, testcluster.AboutProcess("RootCAOverlapBegan"), "the root CA has changed")
	late := c.Namespace(t)
	c.AwaitRootCA(t, late, union)

	c.AwaitRootCA(t, namespace, next)
	c.AwaitRootCA(t, late, next)
	c.AwaitSecretCA(t, namespace, "mine", next)
	c.AwaitEvent(t, testcluster.AboutProcess("RootCAOverlapEnded"), "not published any more")
	testutil.Check(t, "state in the end", map[string]string{"schema-version": "1", "current.crt": next}, stateOfRootCA(t, c))

	testutil.Check(t, "bundles that a client has seen", []string{old, union, next}, published())
}

// recordRootCA records every bundle that a namespace has from now on.
func recordRootCA(t *testing.T, c *testcluster.ControlPlane, namespace string) func() []string {
	t.Helper()
	var mu sync.Mutex
	var seen []string
	see := func(obj any) {
		mu.Lock()
		defer mu.Unlock()
		if bundle := obj.(*corev1.ConfigMap).Data["ca.crt"]; len(seen) == 0 || seen[len(seen)-1] != bundle {
			seen = append(seen, bundle)
		}
	}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(c.API.CoreV1().RESTClient(), "configmaps", namespace,
			fields.OneTermEqualSelector(metav1.ObjectNameField, testcluster.RootCAName)),
		ObjectType: &corev1.ConfigMap{},
		Handler:    cache.ResourceEventHandlerFuncs{AddFunc: see, UpdateFunc: func(_, obj any) { see(obj) }},
	})
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() { informer.RunWithContext(ctx) })
	stop := func() { cancel(); watching.Wait() }
	t.Cleanup(stop)
	<-informer.HasSyncedChecker().Done()
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(seen)
	}
}
