// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/integration/faultproxy"
)

func keysOf(data map[string]string) iter.Seq[string] { return maps.Keys(data) }

// TestRootCAOverlap covers case 44: while the root CA changes, clients that have what
// is published reach servers of the old one and of the new one.
func TestRootCAOverlap(t *testing.T) {
	c := withOwnRootCAs(t)
	old, next := newRootAuthority(t, "old"), newRootAuthority(t, "next")
	ca := caFile(t, old)
	c.manage(t, "--token-secrets=manual", "--root-ca-file="+ca.path, "--root-ca-overlap=5s")
	namespace := c.namespace(t)
	c.createAccount(t, namespace, "someone")
	c.createSecret(t, tokenSecret(namespace, "mine", "someone"))
	c.awaitRootCA(t, namespace, rootCAs(old))
	c.awaitSecretCA(t, namespace, "mine", rootCAs(old))
	published := c.recordRootCA(t, namespace)

	ca.replace(t, []byte(rootCAs(next)))
	union := rootCAs(next, old)
	c.awaitRootCA(t, namespace, union)
	c.awaitSecretCA(t, namespace, "mine", union)
	c.awaitEvent(t, aboutProcess("RootCAOverlapBegan"), "the root CA has changed")
	late := c.namespace(t)
	c.awaitRootCA(t, late, union)

	c.awaitRootCA(t, namespace, rootCAs(next))
	c.awaitRootCA(t, late, rootCAs(next))
	c.awaitSecretCA(t, namespace, "mine", rootCAs(next))
	c.awaitEvent(t, aboutProcess("RootCAOverlapEnded"), "not published any more")
	if diff := cmp.Diff(map[string]string{"schema-version": "1", "current.crt": next.pem}, c.stateOfRootCA(t)); diff != "" {
		t.Errorf("state in the end (-want +got):\n%s", diff)
	}

	type client struct{ Old, New bool } // whose servers it reaches
	var reached []client
	for _, bundle := range published() {
		reached = append(reached, client{old.trusts(t, bundle), next.trusts(t, bundle)})
	}
	if diff := cmp.Diff([]client{{Old: true}, {Old: true, New: true}, {New: true}}, reached); diff != "" {
		t.Errorf("servers that a client with each bundle reaches (-want +got):\n%s", diff)
	}
}

// recordRootCA records every bundle that a namespace has from now on.
func (c *controlPlane) recordRootCA(t *testing.T, namespace string) func() []string {
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
		ListerWatcher: cache.NewListWatchFromClient(c.client.CoreV1().RESTClient(), "configmaps", namespace,
			fields.OneTermEqualSelector(metav1.ObjectNameField, rootCAName)),
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

// TestRootCAOverlapOutlivesTheProcess covers restarts in the middle of an overlap, a
// file that changes while nobody looks, and the way to end an overlap at once.
func TestRootCAOverlapOutlivesTheProcess(t *testing.T) {
	await.Long(t)
	c := withOwnRootCAs(t)
	first, second, third := newRootAuthority(t, "first"), newRootAuthority(t, "second"), newRootAuthority(t, "third")
	ca := caFile(t, first)
	flags := []string{"--token-secrets=manual", "--root-ca-file=" + ca.path}
	m := c.manage(t, flags...)
	namespace := c.namespace(t)
	c.createAccount(t, namespace, "someone")
	c.createSecret(t, tokenSecret(namespace, "mine", "someone"))
	c.awaitSecretCA(t, namespace, "mine", rootCAs(first))
	ca.replace(t, []byte(rootCAs(second)))
	published := c.awaitRootCA(t, namespace, rootCAs(second, first))
	c.awaitSecretCA(t, namespace, "mine", rootCAs(second, first))
	m.awaitIdle(t)
	ends := c.stateOfRootCA(t)

	m.kill(t)
	m = c.manage(t, flags...)
	c.awaitRootCA(t, c.namespace(t), rootCAs(second, first))
	m.awaitIdle(t)
	if now := c.awaitRootCA(t, namespace, rootCAs(second, first)); now.ResourceVersion != published.ResourceVersion {
		t.Error("the restart has written what was right")
	}
	if diff := cmp.Diff(ends, c.stateOfRootCA(t)); diff != "" {
		t.Errorf("state (-before the restart +after):\n%s", diff)
	}

	m.stop(t)
	ca.replace(t, []byte(rootCAs(third)))
	m = c.manage(t, flags...)
	// If both have begun within one second, their own bytes order them.
	all := c.awaitRootCA(t, namespace, rootCAs(third, second, first), rootCAs(third, first, second)).Data["ca.crt"]
	c.awaitSecretCA(t, namespace, "mine", all)
	m.stop(t)

	c.manage(t, append(flags, "--root-ca-overlap=0")...)
	c.awaitRootCA(t, namespace, rootCAs(third))
	c.awaitSecretCA(t, namespace, "mine", rootCAs(third))
	ca.replace(t, []byte(rootCAs(first)))
	c.awaitRootCA(t, namespace, rootCAs(first))
	c.awaitSecretCA(t, namespace, "mine", rootCAs(first))
}

// TestRootCAOverlapOutlivesTheLeader covers a leader change in the middle of it.
func TestRootCAOverlapOutlivesTheLeader(t *testing.T) {
	c := withOwnRootCAs(t)
	old, next := newRootAuthority(t, "old"), newRootAuthority(t, "next")
	ca := caFile(t, old)
	flags := []string{
		publisherAlone, "--root-ca-file=" + ca.path,
		"--leader-elect=true", "--leader-elect-resource-name=root-ca", "--leader-elect-retry-period=500ms",
	}
	leader := c.manage(t, flags...)
	if err := leader.AwaitLog(limited(t), leads); err != nil {
		t.Fatal(err)
	}
	follower := c.manage(t, flags...)
	namespace := c.namespace(t)
	c.awaitRootCA(t, namespace, rootCAs(old))
	ca.replace(t, []byte(rootCAs(next)))
	c.awaitRootCA(t, namespace, rootCAs(next, old))
	follower.awaitMetric(t, "sacm_file_reloads_total", nil, 1)
	ends := c.stateOfRootCA(t)
	leader.stop(t)
	if err := follower.AwaitLog(limited(t), leads); err != nil {
		t.Fatal(err)
	}
	c.awaitRootCA(t, c.namespace(t), rootCAs(next, old))
	follower.awaitIdle(t)
	c.awaitRootCA(t, namespace, rootCAs(next, old))
	if diff := cmp.Diff(ends, c.stateOfRootCA(t)); diff != "" {
		t.Errorf("state (-of the first leader +of the second):\n%s", diff)
	}
}

// TestRootCAIsNeverReadBack covers somebody who may edit one namespace and wants to be
// trusted in others.
func TestRootCAIsNeverReadBack(t *testing.T) {
	c := withOwnRootCAs(t)
	old, next, evil := newRootAuthority(t, "old"), newRootAuthority(t, "next"), newRootAuthority(t, "evil")
	ca := caFile(t, old)
	flags := []string{publisherAlone, "--root-ca-file=" + ca.path}
	m := c.manage(t, flags...)
	theirs, other := c.namespace(t), c.namespace(t)
	c.awaitRootCA(t, theirs, rootCAs(old))
	c.awaitRootCA(t, other, rootCAs(old))
	poison := func() {
		c.patchRootCA(t, theirs, `{"data":{"ca.crt":"`+strings.ReplaceAll(rootCAs(old, evil), "\n", `\n`)+`"}}`)
	}
	m.stop(t)
	poison() // nobody is there to undo it
	c.forgetRootCAs(t)
	m = c.manage(t, flags...)
	c.awaitRootCA(t, theirs, rootCAs(old))
	poison()
	ca.replace(t, []byte(rootCAs(next)))
	for _, namespace := range []string{theirs, other, c.namespace(t)} {
		c.awaitRootCA(t, namespace, rootCAs(next, old))
	}
	m.awaitIdle(t)
	for key, value := range c.stateOfRootCA(t) {
		if strings.Contains(value, evil.pem) {
			t.Errorf("%s of the state holds it", key)
		}
	}
}

// TestRootCAStateIsMissing covers permissions that were deleted, with the state, and are applied
// again: what is published goes on, and the state is written once it is there.
func TestRootCAStateIsMissing(t *testing.T) {
	await.Long(t)
	c := withOwnRootCAs(t)
	old, next := newRootAuthority(t, "old"), newRootAuthority(t, "next")
	ca := caFile(t, old)
	m := c.manage(t, publisherAlone, "--root-ca-file="+ca.path)
	m.faulty = true
	namespace := c.namespace(t)
	c.awaitRootCA(t, namespace, rootCAs(old))
	states := c.client.CoreV1().Secrets(metav1.NamespaceSystem)
	state, err := states.Get(t.Context(), rootCAState, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := states.Delete(t.Context(), rootCAState, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	restored := false
	restore := func() {
		empty := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: state.Name, Namespace: state.Namespace, Labels: state.Labels}, Type: state.Type}
		if _, err := states.Create(cleanupContext(t), empty, metav1.CreateOptions{}); err != nil && !restored {
			t.Fatal(err)
		}
		restored = true
	}
	t.Cleanup(restore)
	ca.replace(t, []byte(rootCAs(next)))
	c.awaitRootCA(t, namespace, rootCAs(next, old))
	c.awaitWarning(t, aboutProcess("RootCAStateUnavailable"), "apply manifests/permissions")
	restore()
	poll(t, "after it was applied again", func() error {
		if diff := cmp.Diff(next.pem, c.stateOfRootCA(t)["current.crt"]); diff != "" {
			return fmt.Errorf("state (-want +got):\n%s", diff)
		}
		return nil
	})
}

// TestRootCAStateIsForbidden covers an identity that may not read the state: what is
// missing is published, what is published is not made smaller, no token waits.
func TestRootCAStateIsForbidden(t *testing.T) {
	await.Long(t)
	c := withOwnRootCAs(t)
	old, next := newRootAuthority(t, "old"), newRootAuthority(t, "next")
	ca := caFile(t, old)
	flags := []string{"--token-secrets=manual", "--root-ca-file=" + ca.path}
	m := c.manage(t, flags...)
	namespace := c.namespace(t)
	c.awaitRootCA(t, namespace, rootCAs(old))
	ca.replace(t, []byte(rootCAs(next)))
	before := c.awaitRootCA(t, namespace, rootCAs(next, old))
	m.stop(t)

	proxy := c.proxy(t)
	proxy.Use(&faultproxy.Rule{
		Match: faultproxy.On("get", "secrets").In(metav1.NamespaceSystem),
		Fault: faultproxy.Answer(http.StatusForbidden, metav1.StatusReasonForbidden),
	})
	m = c.manageThrough(t, proxy, flags...)
	late := c.namespace(t)
	c.awaitRootCA(t, late, rootCAs(next))
	c.createAccount(t, late, "someone")
	c.createSecret(t, tokenSecret(late, "mine", "someone"))
	c.awaitSecretCA(t, late, "mine", rootCAs(next))
	c.awaitWarning(t, aboutProcess("RootCAStateUnavailable"), rootCAState)
	m.awaitIdle(t)
	if after := c.awaitRootCA(t, namespace, rootCAs(next, old)); after.ResourceVersion != before.ResourceVersion {
		t.Error("what was published is written")
	}
	proxy.Use()
	for _, name := range []string{namespace, late} {
		c.awaitRootCA(t, name, rootCAs(next, old))
	}
	c.awaitSecretCA(t, late, "mine", rootCAs(next, old))
}

// TestRootCAStateOfANewerVersion covers a step back to this version: the state is left
// alone.
func TestRootCAStateOfANewerVersion(t *testing.T) {
	c := withOwnRootCAs(t)
	_, err := c.client.CoreV1().Secrets(metav1.NamespaceSystem).Patch(t.Context(), rootCAState,
		types.MergePatchType, []byte(`{"stringData":{"schema-version":"2","something":"else"}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m := c.manage(t, publisherAlone)
	m.faulty = true
	c.awaitRootCA(t, c.namespace(t), c.certificateAuthority(t))
	c.awaitWarning(t, aboutProcess("RootCAStateUnavailable"), fmt.Sprintf("its schema-version is %q", "2"))
	m.awaitIdle(t)
	if diff := cmp.Diff(map[string]string{"schema-version": "2", "something": "else"}, c.stateOfRootCA(t)); diff != "" {
		t.Errorf("state (-before +after):\n%s", diff)
	}
}
