// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package informers

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/internal/meta"
	"sa-controller-manager/internal/reconcile"
	"sa-controller-manager/internal/testutil"
)

func TestMain(m *testing.M) {
	// The second handler slows errors down by the time since the last one, which was in another
	// synctest bubble and may be decades ahead.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1] //nolint:reassign // there is no other way
	testutil.Main(m)
}

// The tests run in synctest bubbles, which also fail if a watch is left behind.

const (
	secretsName = "v1/secrets (type=kubernetes.io/service-account-token)"
	resync      = time.Hour
)

// started is a set of informers that watches what ask asked it for, and how to stop it.
func started(ctx context.Context, client kubernetes.Interface, ask func(*Informers)) (*Informers, func()) {
	v := New(client, resync)
	ask(v)
	ctx, cancel := context.WithCancel(ctx)
	v.Start(ctx)
	return v, func() { cancel(); v.Stop() }
}

// requests are the requests that reached the client, each kind once, sorted.
func requests(client *fake.Clientset) []string {
	made := []string{}
	for _, action := range client.Actions() {
		var fields string
		switch a := action.(type) {
		case clienttesting.ListAction:
			fields = a.GetListRestrictions().Fields.String()
		case clienttesting.WatchAction:
			fields = a.GetWatchRestrictions().Fields.String()
		}
		made = append(made, action.GetVerb()+" "+action.GetResource().Resource+" in "+action.GetNamespace()+"["+fields+"]")
	}
	slices.Sort(made)
	return made
}

func TestOnlyWhatIsAskedForIsWatched(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		client := fake.NewClientset()
		_, stop := started(t.Context(), client, func(*Informers) {})
		synctest.Wait()
		stop()
		testutil.Check(t, "requests if nothing was asked for", []string{}, requests(client))

		client = fake.NewClientset(secretOf("robot"))
		v := New(client, resync)
		for range 2 {
			v.Accounts()
			v.TokenSecrets()
			v.Namespaces()
			v.RootCAs()
		}
		all := []string{"v1/serviceaccounts", secretsName, "v1/namespaces", "v1/configmaps (metadata.name=kube-root-ca.crt)"}
		testutil.Check(t, "missing before the start", all, v.Missing())
		ctx, cancel := context.WithCancel(t.Context())
		v.Start(ctx)
		testutil.Expect(t, v.Await(ctx) && len(v.Missing()) == 0, "missing after Await: %v", v.Missing())
		synctest.Wait()
		secrets, _ := v.TokenSecrets()
		testutil.Expect(t, len(secrets.OfAccount(cache.NewObjectName("shop", "robot"))) == 1,
			"the token Secret of the account is not cached")
		cancel()
		v.Stop()
		const onlyTokens, onlyRootCAs = "[type=kubernetes.io/service-account-token]", "[metadata.name=kube-root-ca.crt]"
		testutil.Check(t, "requests", []string{
			"list configmaps in " + onlyRootCAs, "list namespaces in []", "list secrets in " + onlyTokens, "list serviceaccounts in []",
			"watch configmaps in " + onlyRootCAs, "watch namespaces in []", "watch secrets in " + onlyTokens, "watch serviceaccounts in []",
		}, requests(client))
	})
}

func TestMissingNamesWhatIsNotListed(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		client := fake.NewClientset()
		var allowed atomic.Bool
		client.PrependReactor("list", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
			return !allowed.Load(), nil, errors.New("boom")
		})
		v, stop := started(t.Context(), client, func(v *Informers) { v.Accounts(); v.TokenSecrets() })
		defer stop()

		soon, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		testutil.Expect(t, !v.Await(soon), "Await says synced although secrets cannot be listed")
		testutil.Check(t, "missing", []string{secretsName}, v.Missing())
		allowed.Store(true)
		testutil.Expect(t, v.Await(t.Context()) && len(v.Missing()) == 0, "not synced although the list is allowed now: missing %v",
			v.Missing())
	})
}

// TestViews: a part does not wait for what another one needs.
func TestViews(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		client := fake.NewClientset()
		client.PrependReactor("list", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("boom")
		})
		var one, other, none *Informers
		v, stop := started(t.Context(), client, func(v *Informers) {
			one, other = v.View(), v.View()
			one.Accounts()
			other.TokenSecrets()
			other.Accounts()
		})
		defer stop()
		soon, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		testutil.Check(t, "those that need no Secrets wait", []bool{true, true, true},
			[]bool{one.Await(soon), v.Await(soon, Namespaces, Accounts), none.Await(soon)})
		testutil.Check(t, "those that do are ready", []bool{false, false}, []bool{other.Await(soon), v.Await(soon)})
		var all [][]string
		for _, i := range []*Informers{one, other, v} {
			all = append(all, i.Missing())
		}
		testutil.Check(t, "missing", [][]string{nil, {secretsName}, {secretsName}}, all)
		testutil.Check(t, "watches", 2, len(v.watched))
	})
}

// secretOf is the Secret shop/robot-token with a token for the account.
func secretOf(account string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "robot-token", UID: "secret-uid", ResourceVersion: "17",
			Annotations: map[string]string{corev1.ServiceAccountNameKey: account, corev1.ServiceAccountUIDKey: "uid"},
		},
		Type: corev1.SecretTypeServiceAccountToken,
		Data: map[string][]byte{corev1.ServiceAccountTokenKey: []byte("e30.e30.c2lnbmF0dXJl")},
	}
}

// TestStopWhileTheAPIServerIsAway: client-go sleeps between its tries, for longer each
// time, and an end of the process must not wait for that.
func TestStopWhileTheAPIServerIsAway(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		v := New(testutil.UnreachableClient(t), 0)
		v.Accounts()
		ctx, cancel := context.WithCancel(t.Context())
		v.Start(ctx)
		time.Sleep(10 * time.Minute)
		cancel()
		begin := time.Now()
		v.Stop()
		took := time.Since(begin)
		testutil.Expect(t, took <= reconcile.WatchStopTimeout, "Stop took %v, want %v at most", took, reconcile.WatchStopTimeout)
		time.Sleep(time.Minute) // by then the last one has woken up and ended
	})
}

// client-go hands tombstones to transforms too.
func TestTransformsPassOnWhatIsNotTheirs(t *testing.T) {
	t.Parallel()
	tombstone := cache.DeletedFinalStateUnknown{Key: "shop/robot-token", Obj: secretOf("robot")}
	for name, transform := range map[string]cache.TransformFunc{
		"Namespace": trimNamespace, "Account": trimAccount, "OnlyIdentity": identityOf, "TokenSecret": observeTokenSecret,
	} {
		got, err := transform(tombstone)
		diff := cmp.Diff(any(tombstone), got)
		testutil.Expect(t, diff == "" && err == nil, "%s: tombstone after the transform (-want +got): %v\n%s", name, err, diff)
	}
}

func TestOtherObjectsAreTrimmed(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		wrote := func(manager, fields string) metav1.ManagedFieldsEntry {
			return metav1.ManagedFieldsEntry{Manager: manager, APIVersion: "v1", FieldsType: "FieldsV1",
				FieldsV1: metav1.NewFieldsV1(fields)}
		}
		byKubectl := wrote("kubectl-create", `{"f:metadata":{"f:labels":{".":{},"f:app":{}}}}`)
		described := metav1.ObjectMeta{
			Name: "shop", UID: "uid", ResourceVersion: "4", Labels: map[string]string{"app": "shop"},
			Annotations: map[string]string{"team": "blue"},
			ManagedFields: []metav1.ManagedFieldsEntry{byKubectl,
				wrote(meta.FieldManager, `{"f:secrets":{".":{},"k:{\"name\":\"x\"}":{}}}`)},
		}
		robot := &corev1.ServiceAccount{ObjectMeta: described, Secrets: []corev1.ObjectReference{{Name: "x"}}}
		robot.Namespace, robot.Name = "shop", "robot"
		terminating := corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating}
		client := fake.NewClientset(robot, &corev1.Namespace{ObjectMeta: described, Status: terminating})
		v, stop := started(t.Context(), client, func(v *Informers) { v.Accounts(); v.Namespaces() })
		defer stop()
		v.Await(t.Context())

		accounts, _ := v.Accounts()
		got := testutil.Get(accounts.ServiceAccounts("shop").Get("robot"))(t)
		want := robot.DeepCopy()
		want.TypeMeta, want.ManagedFields = got.TypeMeta, got.ManagedFields
		testutil.Check(t, "cached account", want, got)
		testutil.Check(t, "managedFields of the account, which prove a reference", 1, len(got.ManagedFields))
		signer, end := started(t.Context(), client, func(v *Informers) { v.OnlyIdentity = true; v.Accounts() })
		defer end()
		signer.Await(t.Context())
		accounts, _ = signer.Accounts()
		testutil.Check(t, "account of the signer", &corev1.ServiceAccount{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "robot", UID: "uid", ResourceVersion: "4"},
		}, testutil.Get(accounts.ServiceAccounts("shop").Get("robot"))(t))
		namespaces, _ := v.Namespaces()
		namespace := testutil.Get(namespaces.Get("shop"))(t)
		testutil.Check(t, "cached namespace", &corev1.Namespace{
			TypeMeta: namespace.TypeMeta, ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "uid", ResourceVersion: "4"},
			Status: terminating,
		}, namespace)
	})
}

func TestObserveRootCA(t *testing.T) {
	t.Parallel()
	meta := func() metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Namespace: "shop", Name: "kube-root-ca.crt", UID: "uid", ResourceVersion: "7",
			Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}, Finalizers: []string{"e/f"},
		}
	}
	described := func(text string) metav1.ObjectMeta {
		m := meta()
		m.Annotations["kubernetes.io/description"] = text
		return m
	}
	managed := meta()
	managed.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "another"}}
	hash := sha256.Sum256([]byte("bundle"))
	bundle := map[string]string{"ca.crt": "bundle"}
	for name, tc := range map[string]struct {
		reason string
		given  corev1.ConfigMap
		want   RootCA
	}{
		"Right": {
			given: corev1.ConfigMap{ObjectMeta: described(RootCADescription), Data: bundle},
			want:  RootCA{ObjectMeta: meta(), Has: true, Hash: hash, Described: true},
		},
		"OtherDescription": {
			reason: "it is kept, so that it is sent back where nothing else is wrong",
			given:  corev1.ConfigMap{ObjectMeta: described("mine"), Data: bundle},
			want:   RootCA{ObjectMeta: described("mine"), Has: true, Hash: hash},
		},
		"ManagedFields": {
			reason: "nobody reads them", given: corev1.ConfigMap{ObjectMeta: managed, Data: bundle},
			want: RootCA{ObjectMeta: meta(), Has: true, Hash: hash},
		},
		"NoData": {given: corev1.ConfigMap{ObjectMeta: meta()}, want: RootCA{ObjectMeta: meta()}},
		"EmptyBundle": {
			reason: "is none", given: corev1.ConfigMap{ObjectMeta: meta(), Data: map[string]string{"ca.crt": ""}},
			want: RootCA{ObjectMeta: meta()},
		},
		"MoreKeys": {
			given: corev1.ConfigMap{ObjectMeta: meta(), Data: map[string]string{"ca.crt": "bundle", "x": ""}},
			want:  RootCA{ObjectMeta: meta(), Has: true, Hash: hash, Extra: true},
		},
		"BinaryKey": {
			given: corev1.ConfigMap{ObjectMeta: meta(), Data: bundle, BinaryData: map[string][]byte{"x": nil}},
			want:  RootCA{ObjectMeta: meta(), Has: true, Hash: hash, Extra: true},
		},
		"BinaryBundle": {
			reason: "clients read data",
			given:  corev1.ConfigMap{ObjectMeta: meta(), BinaryData: map[string][]byte{"ca.crt": []byte("bundle")}},
			want:   RootCA{ObjectMeta: meta(), Extra: true},
		},
		"Immutable": {given: corev1.ConfigMap{ObjectMeta: meta(), Immutable: new(true)}, want: RootCA{ObjectMeta: meta(), Immutable: true}},
	} {
		t.Run(name, func(t *testing.T) {
			before := tc.given.DeepCopy()
			got := testutil.Get(observeRootCA(&tc.given))(t)
			testutil.Check(t, tc.reason, &tc.want, got)
			testutil.Check(t, "what was given", before, &tc.given)
			again, err := observeRootCA(got)
			testutil.Expect(t, err == nil && again == got, "observed again: %v, %v", again, err)
		})
	}
}

func TestRootCALister(t *testing.T) {
	t.Parallel()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	mine := ObserveRootCA(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "kube-root-ca.crt", UID: "uid"}})
	testutil.Must(t, indexer.Add(mine))
	lister := RootCALister{indexer}
	got, none := lister.Get("shop"), lister.Get("other")
	testutil.Expect(t, got == mine && none == nil, "got %v and, of a namespace that has none, %v", got, none)
	want := &corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "kube-root-ca.crt", UID: "uid"}
	testutil.Check(t, "reference", want, mine.Reference())
}
