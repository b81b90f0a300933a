// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecrets

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/internal/testutil"
)

func observedIn(namespace, name, account string) *TokenSecret {
	return &TokenSecret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, AccountName: account}
}

func sortedNames(names []cache.ObjectName) []string {
	texts := []string{}
	for _, name := range names {
		texts = append(texts, name.String())
	}
	slices.Sort(texts)
	return texts
}

func secretNames(secrets []*TokenSecret) []string {
	var names []cache.ObjectName
	for _, secret := range secrets {
		names = append(names, cache.MetaObjectToName(secret))
	}
	return sortedNames(names)
}

func TestLister(t *testing.T) {
	t.Parallel()
	first := observedIn("shop", "robot-token-1", "robot")
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, Indexers())
	for _, secret := range []*TokenSecret{
		first,
		observedIn("shop", "robot-token-2", "robot"),
		observedIn("shop", "admin-token", "admin"),
		observedIn("bank", "robot-token-1", "robot"),
		observedIn("shop", "nobodys", ""),
	} {
		testutil.Must(t, indexer.Add(secret))
	}
	lister := ListerOf(indexer)

	if got := lister.Get(cache.NewObjectName("shop", "robot-token-1")); got != first {
		t.Errorf("Get returned %v, want the Secret itself", got)
	}
	if got := lister.Get(cache.NewObjectName("shop", "robot-token-3")); got != nil {
		t.Errorf("Get returned %v for a Secret that is not there, want nil", got)
	}
	all := []string{"bank/robot-token-1", "shop/admin-token", "shop/nobodys", "shop/robot-token-1", "shop/robot-token-2"}
	testutil.Check(t, "names", all, secretNames(lister.All()))
	for account, want := range map[cache.ObjectName][]string{
		{Namespace: "shop", Name: "robot"}: {"shop/robot-token-1", "shop/robot-token-2"},
		{Namespace: "bank", Name: "robot"}: {"bank/robot-token-1"},
		{Namespace: "bank", Name: "admin"}: {},
		{Namespace: "shop", Name: ""}:      {},
	} {
		testutil.Check(t, "Secrets of "+account.String(), want, secretNames(lister.OfAccount(account)))
	}
}
