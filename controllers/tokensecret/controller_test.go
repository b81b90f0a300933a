// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecret

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/controllers/controllertest"
	"sa-controller-manager/controllers/tokensecrets"
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

func TestStandbyQueuesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := worldAt(t, time.Time{})
		w.Cache(t, account(), tokenSecret("one"), tokenSecret("two"), tokenSecret("full", filled(t)))
		var queued []string
		w.secretLoop.Sync = func(_ context.Context, name cache.ObjectName) error {
			queued = append(queued, name.Name)
			return nil
		}
		controllertest.CheckStandby(t, w.Run, func() { w.RootCA.Set(testBundle(t)) }, &queued, "one", "two")
	})
}

func TestSecretHandlerOnTombstone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, account())
	w.Cache(t, account(referencing("token")))
	last := tokenSecret("token", filled(t))
	observed := tokensecrets.Observe(last)
	w.secretHandler().OnDelete(cache.DeletedFinalStateUnknown{Key: named("token").String(), Obj: observed})

	ctx := t.Context()
	removed := make(chan struct{})
	w.Client.PrependReactor("patch", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) {
		close(removed)
		return false, nil, nil
	})
	go w.referenceLoop.Run(ctx)
	<-removed
}
