// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

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
	"sa-controller-manager/test/integration/testcluster"
)

func keysOf(data map[string]string) iter.Seq[string] { return maps.Keys(data) }

// TestRootCAOverlap covers case 44: while the root CA changes, clients that have what
// is published reach servers with certificates of the old and of the new root CA.
func TestRootCAOverlap(t *testing.T) {
	c := withOwnRootCAs(t)
	old, next := newRootAuthority(t, "old"), newRootAuthority(t, "next")
	ca := caFile(t, old)
	c.Manage(t, "--token-secrets=manual", "--root-ca-file="+ca.Path, "--root-ca-overlap=5s")
	namespace := c.Namespace(t)
	c.CreateAccount(t, namespace, "someone")
	c.CreateSecret(t, testcluster.TokenSecret(namespace, "mine", "someone"))
	c.AwaitRootCA(t, namespace, rootCAs(old))
	c.AwaitSecretCA(t, namespace, "mine", rootCAs(old))
	published := recordRootCA(t, c, namespace)

	ca.Replace(t, []byte(rootCAs(next)))
	union := rootCAs(next, old)
	c.AwaitRootCA(t, namespace, union)
	c.AwaitSecretCA(t, namespace, "mine", union)
	c.AwaitEvent(t, testcluster.AboutProcess("RootCAOverlapBegan"), "the root CA has changed")
	late := c.Namespace(t)
	c.AwaitRootCA(t, late, union)

	c.AwaitRootCA(t, namespace, rootCAs(next))
	c.AwaitRootCA(t, late, rootCAs(next))
	c.AwaitSecretCA(t, namespace, "mine", rootCAs(next))
	c.AwaitEvent(t, testcluster.AboutProcess("RootCAOverlapEnded"), "not published any more")
	if diff := cmp.Diff(map[string]string{"schema-version": "1", "current.crt": next.pem}, stateOfRootCA(t, c)); diff != "" {
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

// TestRootCAOverlapOutlivesTheProcess covers restarts in the middle of an overlap, a
// file that changes while no process runs, and the way to end an overlap at once.
func TestRootCAOverlapOutlivesTheProcess(t *testing.T) {
	await.Long(t)
	c := withOwnRootCAs(t)
	first, second, third := newRootAuthority(t, "first"), newRootAuthority(t, "second"), newRootAuthority(t, "third")
	ca := caFile(t, first)
	flags := []string{"--token-secrets=manual", "--root-ca-file=" + ca.Path}
	m := c.Manage(t, flags...)
	namespace := c.Namespace(t)
	c.CreateAccount(t, namespace, "someone")
	c.CreateSecret(t, testcluster.TokenSecret(namespace, "mine", "someone"))
	c.AwaitSecretCA(t, namespace, "mine", rootCAs(first))
	ca.Replace(t, []byte(rootCAs(second)))
	published := c.AwaitRootCA(t, namespace, rootCAs(second, first))
	c.AwaitSecretCA(t, namespace, "mine", rootCAs(second, first))
	m.WaitIdle(t)
	ends := stateOfRootCA(t, c)

	m.Crash(t)
	m = c.Manage(t, flags...)
	c.AwaitRootCA(t, c.Namespace(t), rootCAs(second, first))
	m.WaitIdle(t)
	if now := c.AwaitRootCA(t, namespace, rootCAs(second, first)); now.ResourceVersion != published.ResourceVersion {
		t.Error("the restart has written what was right")
	}
	if diff := cmp.Diff(ends, stateOfRootCA(t, c)); diff != "" {
		t.Errorf("state (-before the restart +after):\n%s", diff)
	}

	m.Shutdown(t)
	ca.Replace(t, []byte(rootCAs(third)))
	m = c.Manage(t, flags...)
	// Overlaps that began within the same second are ordered by their bytes.
	all := c.AwaitRootCA(t, namespace, rootCAs(third, second, first), rootCAs(third, first, second)).Data["ca.crt"]
	c.AwaitSecretCA(t, namespace, "mine", all)
	m.Shutdown(t)

	c.Manage(t, append(flags, "--root-ca-overlap=0")...)
	c.AwaitRootCA(t, namespace, rootCAs(third))
	c.AwaitSecretCA(t, namespace, "mine", rootCAs(third))
	ca.Replace(t, []byte(rootCAs(first)))
	c.AwaitRootCA(t, namespace, rootCAs(first))
	c.AwaitSecretCA(t, namespace, "mine", rootCAs(first))
}

// TestRootCAOverlapOutlivesTheLeader covers a leader change in the middle of it.
func TestRootCAOverlapOutlivesTheLeader(t *testing.T) {
	c := withOwnRootCAs(t)
	old, next := newRootAuthority(t, "old"), newRootAuthority(t, "next")
	ca := caFile(t, old)
	flags := []string{
		publisherAlone, "--root-ca-file=" + ca.Path,
		"--leader-elect=true", "--leader-elect-resource-name=root-ca", "--leader-elect-retry-period=500ms",
	}
	leader := c.Manage(t, flags...)
	leader.ExpectLog(t, testcluster.LeadsMessage)
	follower := c.Manage(t, flags...)
	namespace := c.Namespace(t)
	c.AwaitRootCA(t, namespace, rootCAs(old))
	ca.Replace(t, []byte(rootCAs(next)))
	c.AwaitRootCA(t, namespace, rootCAs(next, old))
	follower.AwaitMetric(t, "sacm_file_reloads_total", nil, 1)
	ends := stateOfRootCA(t, c)
	leader.Shutdown(t)
	follower.ExpectLog(t, testcluster.LeadsMessage)
	c.AwaitRootCA(t, c.Namespace(t), rootCAs(next, old))
	follower.WaitIdle(t)
	c.AwaitRootCA(t, namespace, rootCAs(next, old))
	if diff := cmp.Diff(ends, stateOfRootCA(t, c)); diff != "" {
		t.Errorf("state (-of the first leader +of the second):\n%s", diff)
	}
}

// TestRootCAIsNeverReadBack covers a user who may edit one namespace and tries
// to become trusted in others.
func TestRootCAIsNeverReadBack(t *testing.T) {
	c := withOwnRootCAs(t)
	old, next, evil := newRootAuthority(t, "old"), newRootAuthority(t, "next"), newRootAuthority(t, "evil")
	ca := caFile(t, old)
	flags := []string{publisherAlone, "--root-ca-file=" + ca.Path}
	m := c.Manage(t, flags...)
	theirs, other := c.Namespace(t), c.Namespace(t)
	c.AwaitRootCA(t, theirs, rootCAs(old))
	c.AwaitRootCA(t, other, rootCAs(old))
	poison := func() {
		patchRootCA(t, c, theirs, `{"data":{"ca.crt":"`+strings.ReplaceAll(rootCAs(old, evil), "\n", `\n`)+`"}}`)
	}
	m.Shutdown(t)
	poison() // no manager runs that could undo it
	forgetRootCAs(t, c)
	m = c.Manage(t, flags...)
	c.AwaitRootCA(t, theirs, rootCAs(old))
	poison()
	ca.Replace(t, []byte(rootCAs(next)))
	for _, namespace := range []string{theirs, other, c.Namespace(t)} {
		c.AwaitRootCA(t, namespace, rootCAs(next, old))
	}
	m.WaitIdle(t)
	for key, value := range stateOfRootCA(t, c) {
		if strings.Contains(value, evil.pem) {
			t.Errorf("%s of the state holds it", key)
		}
	}
}

// TestRootCAStateIsMissing covers permissions that were deleted, with the state, and are applied
// again: publishing continues, and the state is written once its Secret exists.
func TestRootCAStateIsMissing(t *testing.T) {
	await.Long(t)
	c := withOwnRootCAs(t)
	old, next := newRootAuthority(t, "old"), newRootAuthority(t, "next")
	ca := caFile(t, old)
	m := c.Manage(t, publisherAlone, "--root-ca-file="+ca.Path)
	m.ExpectErrors = true
	namespace := c.Namespace(t)
	c.AwaitRootCA(t, namespace, rootCAs(old))
	states := c.API.CoreV1().Secrets(metav1.NamespaceSystem)
	state, err := states.Get(t.Context(), testcluster.RootCAState, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := states.Delete(t.Context(), testcluster.RootCAState, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	restored := false
	restore := func() {
		empty := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: state.Name, Namespace: state.Namespace, Labels: state.Labels}, Type: state.Type}
		if _, err := states.Create(testcluster.CleanupContext(t), empty, metav1.CreateOptions{}); err != nil && !restored {
			t.Fatal(err)
		}
		restored = true
	}
	t.Cleanup(restore)
	ca.Replace(t, []byte(rootCAs(next)))
	c.AwaitRootCA(t, namespace, rootCAs(next, old))
	c.AwaitWarning(t, testcluster.AboutProcess("RootCAStateUnavailable"), "apply manifests/permissions")
	restore()
	testcluster.Poll(t, "after it was applied again", func() error {
		if diff := cmp.Diff(next.pem, stateOfRootCA(t, c)["current.crt"]); diff != "" {
			return fmt.Errorf("state (-want +got):\n%s", diff)
		}
		return nil
	})
}

// TestRootCAStateIsForbidden covers an identity that may not read the state: what is
// missing is published, published bundles lose no certificate, and tokens are still issued.
func TestRootCAStateIsForbidden(t *testing.T) {
	await.Long(t)
	c := withOwnRootCAs(t)
	old, next := newRootAuthority(t, "old"), newRootAuthority(t, "next")
	ca := caFile(t, old)
	flags := []string{"--token-secrets=manual", "--root-ca-file=" + ca.Path}
	m := c.Manage(t, flags...)
	namespace := c.Namespace(t)
	c.AwaitRootCA(t, namespace, rootCAs(old))
	ca.Replace(t, []byte(rootCAs(next)))
	before := c.AwaitRootCA(t, namespace, rootCAs(next, old))
	m.Shutdown(t)

	proxy := c.Proxy(t)
	proxy.Use(&faultproxy.Rule{
		Match: faultproxy.On("get", "secrets").In(metav1.NamespaceSystem),
		Fault: faultproxy.Answer(http.StatusForbidden, metav1.StatusReasonForbidden),
	})
	m = c.ManageThrough(t, proxy, flags...)
	late := c.Namespace(t)
	c.AwaitRootCA(t, late, rootCAs(next))
	c.CreateAccount(t, late, "someone")
	c.CreateSecret(t, testcluster.TokenSecret(late, "mine", "someone"))
	c.AwaitSecretCA(t, late, "mine", rootCAs(next))
	c.AwaitWarning(t, testcluster.AboutProcess("RootCAStateUnavailable"), testcluster.RootCAState)
	m.WaitIdle(t)
	if after := c.AwaitRootCA(t, namespace, rootCAs(next, old)); after.ResourceVersion != before.ResourceVersion {
		t.Error("what was published is written")
	}
	proxy.Use()
	for _, name := range []string{namespace, late} {
		c.AwaitRootCA(t, name, rootCAs(next, old))
	}
	c.AwaitSecretCA(t, late, "mine", rootCAs(next, old))
}

// TestRootCAStateOfANewerVersion covers a downgrade to this version: the state stays unchanged.
func TestRootCAStateOfANewerVersion(t *testing.T) {
	c := withOwnRootCAs(t)
	_, err := c.API.CoreV1().Secrets(metav1.NamespaceSystem).Patch(t.Context(), testcluster.RootCAState,
		types.MergePatchType, []byte(`{"stringData":{"schema-version":"2","something":"else"}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m := c.Manage(t, publisherAlone)
	m.ExpectErrors = true
	c.AwaitRootCA(t, c.Namespace(t), c.RootCA(t))
	c.AwaitWarning(t, testcluster.AboutProcess("RootCAStateUnavailable"), fmt.Sprintf("its schema-version is %q", "2"))
	m.WaitIdle(t)
	if diff := cmp.Diff(map[string]string{"schema-version": "2", "something": "else"}, stateOfRootCA(t, c)); diff != "" {
		t.Errorf("state (-before +after):\n%s", diff)
	}
}
