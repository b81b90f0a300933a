// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reissue

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/controllers/controllertest"
	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
)

// TestSuccessorKeepsWhatAPersonHasSet: what decides on the life of a Secret decides on that of its
// successor, too.
func TestSuccessorKeepsWhatAPersonHasSet(t *testing.T) {
	t.Parallel()
	owner := metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "App", Name: "shop", UID: "u", Controller: new(true)}
	set := func(secret *corev1.Secret) {
		owned := owner
		owned.BlockOwnerDeletion = new(true)
		secret.OwnerReferences = []metav1.OwnerReference{owned}
		metav1.SetMetaDataLabel(&secret.ObjectMeta, "app", "shop")
		metav1.SetMetaDataLabel(&secret.ObjectMeta, tokensecrets.LastUsedLabel, "2026-01-01")
		secret.Annotations["example.com/own"] = "stays behind"
		secret.Annotations[tokensecrets.KeepAnnotation] = "true"
	}
	for name, tc := range map[string]struct {
		reason string
		old    *corev1.Secret
		lists  []string
		want   map[string]string // labels
	}{
		"Ours": {
			"the cleaner knows it by our label", tokenSecret("old", set), []string{"old"},
			map[string]string{"app": "shop", tokensecrets.AutoCreatedLabel: "true"},
		},
		"UsersInTheList": {
			"the cleaner judges what the list names", tokenSecret("old", userMade, set, mode(modeSideBySide)), []string{"old"},
			map[string]string{"app": "shop", tokensecrets.AutoCreatedLabel: "true"},
		},
		"UsersAlone": {
			"the cleaner leaves it alone", tokenSecret("old", userMade, set, mode(modeSideBySide)), nil,
			map[string]string{"app": "shop"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			named := account(referencing(tc.lists...))
			got := successorOf(&tokensecrets.Live{Secret: tc.old, Account: named}, "new")
			testutil.Check(t, tc.reason+": labels", tc.want, got.Labels)
			testutil.Check(t, tc.reason+": owners", []metav1.OwnerReference{owner}, got.OwnerReferences)
			testutil.Check(t, tc.reason+": annotations", map[string]string{
				corev1.ServiceAccountNameKey: "app", corev1.ServiceAccountUIDKey: testUID,
				tokensecrets.ReplacesAnnotation: "old/" + string(tc.old.UID), tokensecrets.KeepAnnotation: "true",
			}, got.Annotations)
		})
	}
}

// TestEachPairIsFinishedFirst re-issues for many accounts. The first client has its new Secret in
// seconds, whatever waits behind it.
func TestEachPairIsFinishedFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const accounts = 300
		var objects []runtime.Object
		for i := range accounts {
			namespace := fmt.Sprintf("ns%03d", i)
			old := tokenSecret("old", func(s *corev1.Secret) { s.Namespace, s.UID = namespace, types.UID("uid-"+namespace) })
			withOld(t)(old)
			objects = append(objects, old, account(referencing("old"), func(a *corev1.ServiceAccount) { a.Namespace = namespace }))
		}
		w := controllertest.NewWorld(time.Time{}, objects...)
		suffixes, created, most := 0, 0, 0
		referenced := sets.New[string]() // a stale cache may have one referenced again
		c := New(Config{
			Client: w.Client, Informers: w.Informers, Ring: signing.NewKeyring(rotated()),
			MayReissue: func() error { return nil }, Confirmed: func(string) bool { return true },
			Recorder: w.Recorder(), Metrics: NewMetrics(w.Registry.MustRegister),
			NewSuffix: func() string { suffixes++; return fmt.Sprintf("n%04d", suffixes) },
		})
		w.Client.PrependReactor("create", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
			secret := action.(clienttesting.CreateAction).GetObject().(*corev1.Secret)
			secret.UID = types.UID("uid-" + secret.Name)
			secret.Data = map[string][]byte{}
			withNew(t)(secret) // at once, as the token controller does it
			created++
			most = max(most, created-referenced.Len())
			return false, nil, nil
		})
		w.Client.PrependReactor("patch", "serviceaccounts", func(action clienttesting.Action) (bool, runtime.Object, error) {
			referenced.Insert(action.GetNamespace())
			return false, nil, nil
		})
		stop := w.Start(t, c.Run)
		defer stop()
		time.Sleep(accounts/perSecond*time.Second + 10*time.Second)
		synctest.Wait()
		testutil.Check(t, "new Secrets", accounts, created)
		testutil.Check(t, "references to them", accounts, referenced.Len())
		if most > 2*perSecond {
			t.Errorf("%d pairs were begun and not finished at a time, want about %d at most", most, perSecond)
		}
	})
}
