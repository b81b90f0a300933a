// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecret

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/internal/testutil"
)

// between runs do before it registers a handler.
type between struct {
	cache.SharedIndexInformer

	do func()
}

func (b between) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	b.do()
	return b.SharedIndexInformer.AddEventHandler(handler)
}

// TestDeletedWhileATermBegins deletes an account's own Secret after the handler of accounts was registered
// and before that of Secrets: the account has to lose its reference and, with auto, to get another Secret.
func TestDeletedWhileATermBegins(t *testing.T) {
	t.Parallel()
	for _, auto := range []bool{true, false} {
		t.Run(fmt.Sprintf("auto=%t", auto), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				secret := tokenSecret("token", filled(t), autoCreated)
				w := worldAt(t, time.Time{}, account(listed("sa-controller-manager", "token")), secret)
				w.Auto = auto
				w.secretInformer = between{w.secretInformer, func() {
					synctest.Wait()
					w.Delete(t, secret)
					synctest.Wait()
				}}
				stop := w.Start(t, w.Run)
				defer stop()
				time.Sleep(time.Minute)
				synctest.Wait()
				got, err := w.Client.Tracker().Get(corev1.SchemeGroupVersion.WithResource("serviceaccounts"), testNamespace, "app")
				testutil.Must(t, err)
				want := 0
				if auto {
					want = 1
				}
				references := got.(*corev1.ServiceAccount).Secrets
				if len(references) != want || want == 1 && references[0].Name == "token" {
					t.Errorf("the account references %v, want %d living", references, want)
				}
			})
		})
	}
}

// TestChangedWhileListed changes a Secret while the accounts are listed for its previous version. The list
// that the new version has asked for must come.
func TestChangedWhileListed(t *testing.T) {
	t.Parallel()
	secret := tokenSecret("token", boundTo(testUID))
	w := newWorld(t, secret)
	w.gets.SetBurst(0) // so that it asks for a list
	w.Cache(t, secret, tokenSecret("sibling", boundTo(testUID)))
	w.syncsSecret(t, "token", "it waits")
	w.syncsSecret(t, "sibling", "it waits too")
	newer := tokenSecret("token", boundTo(testUID), atVersion[*corev1.Secret]("21"))
	changed := false
	w.Client.PrependReactor("list", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) {
		if !changed {
			changed = true
			w.Live(t, newer)
			w.Cache(t, newer)
			testutil.Must(t, w.syncSecret(t.Context(), named("token"))) // the event of the change
		}
		return false, nil, nil
	})
	for range 5 {
		testutil.Must(t, w.syncLookups(t.Context(), lookupKey{}))
	}
	want := version(w.secrets.Get(named("token")))
	if kept := w.lookups.copied()[named("token")]; !changed || kept.version != want || !kept.value.ended {
		t.Errorf("changed %t; kept %+v, want an answer for version %s", changed, kept, want)
	}
}
