// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package informers

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/meta"
	"sa-controller-manager/internal/testutil"
)

// The tests run in synctest bubbles, which also fail if a watch is left behind.

const (
	secretsName = "secrets (type kubernetes.io/service-account-token)"
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
	t.Parallel()
	const (
		onlyTokens  = "[type=kubernetes.io/service-account-token]"
		onlyRootCAs = "[metadata.name=kube-root-ca.crt]"
	)
	cases := map[string]struct {
		ask      func(*Informers)
		missing  []string
		requests []string
	}{
		"Nothing": {ask: func(*Informers) {}, requests: []string{}},
		"AllTwice": {
			ask: func(v *Informers) {
				for range 2 {
					v.Accounts()
					v.TokenSecrets()
					v.Namespaces()
					v.RootCAs()
				}
			},
			missing: []string{"serviceaccounts", secretsName, "namespaces", "configmaps (name kube-root-ca.crt)"},
			requests: []string{
				"list configmaps in " + onlyRootCAs, "list namespaces in []", "list secrets in " + onlyTokens,
				"list serviceaccounts in []",
				"watch configmaps in " + onlyRootCAs, "watch namespaces in []", "watch secrets in " + onlyTokens,
				"watch serviceaccounts in []",
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewClientset()
				v := New(client, resync)
				tc.ask(v)
				testutil.Check(t, "missing before the start", tc.missing, v.Missing())
				ctx, cancel := context.WithCancel(t.Context())
				v.Start(ctx)
				if !v.Await(ctx) {
					t.Error("the informers have not synced")
				}
				if missing := v.Missing(); len(missing) > 0 {
					t.Errorf("missing after Await: %v", missing)
				}
				synctest.Wait()
				cancel()
				v.Stop()
				testutil.Check(t, "requests", tc.requests, requests(client))
			})
		})
	}
}

func TestMissingNamesWhatIsNotListed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		var allowed atomic.Bool
		client.PrependReactor("list", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
			return !allowed.Load(), nil, errors.New("boom")
		})
		v, stop := started(t.Context(), client, func(v *Informers) { v.Accounts(); v.TokenSecrets() })
		defer stop()

		soon, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if v.Await(soon) {
			t.Error("Await says synced although secrets cannot be listed")
		}
		testutil.Check(t, "missing", []string{secretsName}, v.Missing())
		allowed.Store(true)
		if !v.Await(t.Context()) || len(v.Missing()) > 0 {
			t.Errorf("not synced although the list is allowed now: missing %v", v.Missing())
		}
	})
}

// told collects what a handler of token Secrets receives.
type told struct{ lines []string }

func (h *told) OnAdd(obj any, _ bool) { h.note("add", obj) }
func (h *told) OnUpdate(_, obj any)   { h.note("update", obj) }
func (h *told) OnDelete(obj any)      { h.note("delete", obj) }
func (h *told) note(what string, obj any) {
	secret, ok := obj.(*tokensecrets.TokenSecret)
	if !ok {
		h.lines = append(h.lines, what+" of something else")
		return
	}
	h.lines = append(h.lines, what+" "+secret.Name+" of "+secret.AccountName)
}

func TestTokenSecretsThroughTheInformer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(tokenSecret("robot"))
		var secrets tokensecrets.Lister
		handler := &told{}
		v, stop := started(t.Context(), client, func(v *Informers) {
			var informer cache.SharedIndexInformer
			secrets, informer = v.TokenSecrets()
			if _, err := informer.AddEventHandler(handler); err != nil {
				t.Fatal(err)
			}
		})
		v.Await(t.Context())
		synctest.Wait()

		secret := tokenSecret("robot")
		if got := secrets.Get(cache.NewObjectName("shop", "robot-token")); !reflect.DeepEqual(got, tokensecrets.Observe(secret)) {
			t.Errorf("cached: %+v", got)
		}

		api := client.CoreV1().Secrets("shop")
		if _, err := api.Update(t.Context(), tokenSecret("admin"), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		former, latter := secrets.OfAccount(cache.NewObjectName("shop", "robot")), secrets.OfAccount(cache.NewObjectName("shop", "admin"))
		if len(former) != 0 || len(latter) != 1 {
			t.Errorf("index after the account was changed: %v, and of the other one %v", former, latter)
		}

		time.Sleep(resync + time.Minute) // what is cached goes through the transform once more
		testutil.Must(t, api.Delete(t.Context(), "robot-token", metav1.DeleteOptions{}))
		synctest.Wait()
		stop()
		if all := secrets.All(); len(all) > 0 {
			t.Errorf("cached after the deletion: %v", all)
		}
		lines := []string{"add robot-token of robot", "update robot-token of admin", "update robot-token of admin", "delete robot-token of admin"}
		testutil.Check(t, "handler calls", lines, handler.lines)
	})
}

func TestOtherObjectsAreTrimmed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		entries := []metav1.ManagedFieldsEntry{wrote("kubectl-create", labelFields), wrote(meta.FieldManager, oneReference)}
		client := fake.NewClientset(account(entries...),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"app": "shop"}}})
		v, stop := started(t.Context(), client, func(v *Informers) { v.Accounts(); v.Namespaces() })
		defer stop()
		v.Await(t.Context())

		accounts, _ := v.Accounts()
		if got, err := accounts.ServiceAccounts("shop").Get("robot"); err != nil || len(got.ManagedFields) != 1 {
			t.Errorf("cached account is %v, %v, want it with one managedFields entry", got, err)
		}
		namespaces, _ := v.Namespaces()
		if got, err := namespaces.List(labels.Everything()); err != nil || len(got) != 1 || got[0].Labels != nil {
			t.Errorf("cached namespaces are %v, %v, want one without labels", got, err)
		}
	})
}
