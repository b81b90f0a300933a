// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokencontroller

import (
	"bytes"
	"cmp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/controllers/controllertest"
	"sa-controller-manager/controllers/rootca"
	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/meta"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing/testkeys"
	"sa-controller-manager/tokens"
)

// What the flags of FuzzSyncSecret say. The four highest bits are two accounts, see accountOf.
const (
	isImmutable = 1 << iota
	isTerminating
	isInvalid
	isAuto
	hasOwnToken // of the account with testUID, by the key in use
	hasOwnCA
	withoutRootCA
	filledByUs // say managedFields
	isYounger
	cachedAccount = 9
	liveAccount   = 11
)

// fillFields are what managedFields say of a Secret that this program has filled.
const fillFields = `{"f:data":{".":{},"f:ca.crt":{},"f:namespace":{},"f:token":{}},` +
	`"f:metadata":{"f:annotations":{"f:kubernetes.io/service-account.uid":{}}}}`

// api is what kube-apiserver has, and what was asked of it.
type api struct {
	secret  *corev1.Secret
	account *corev1.ServiceAccount
	writes  []clienttesting.Action
	t       testing.TB
}

func (a *api) answer(action clienttesting.Action) (bool, runtime.Object, error) {
	get, reads := action.(clienttesting.GetActionImpl)
	switch {
	case !reads:
		a.writes = append(a.writes, action)
		if patch, ok := action.(clienttesting.PatchActionImpl); ok {
			after := controllertest.Merged(a.t, a.secret, patch.Patch)
			after.ResourceVersion += "0"
			return true, after, nil
		}
		return true, nil, nil
	case get.Resource.Resource == "secrets" && get.Name == a.secret.Name:
		return true, a.secret.DeepCopy(), nil
	case get.Resource.Resource == "serviceaccounts" && a.account != nil && get.Name == a.account.Name:
		return true, a.account.DeepCopy(), nil
	}
	return true, nil, apierrors.NewNotFound(get.Resource.GroupResource(), get.Name)
}

// FuzzSyncSecret has a token Secret looked at until nothing is written any more, whatever is
// in it, whichever account lives, and whichever the cache knows. What is written is applied
// as kube-apiserver does, and held against the rules of the package comment.
func FuzzSyncSecret(f *testing.F) {
	for _, accounts := range []uint16{0, 1 << cachedAccount, 2<<liveAccount | 1<<cachedAccount, 2<<liveAccount | 2<<cachedAccount,
		3 << cachedAccount} {
		f.Add("app", "", "", "", "", "key", "value", accounts)
		f.Add("app", testUID, "", "", "", "key", "value", accounts|isInvalid)
		f.Add("app", testUID, "", "x", "other", "", "", accounts|hasOwnToken|hasOwnCA)
		f.Add("app", testUID, "a.b.c", "x", "ns", "key", "", accounts|filledByUs|isYounger)
		f.Add("app", testUID, "a.b.c", "", "", "key", "value", accounts|isYounger)
		f.Add("app", otherUID, "", "", "", "ca", "value", accounts|withoutRootCA|isImmutable)
		f.Add("another", otherUID, "x", "", "", "key", "value", accounts|isAuto)
		f.Add("No Name", "", "x", "", "", "key", "value", accounts|isTerminating)
	}
	w := newFuzzedWorld(f)
	f.Fuzz(w.syncUntilNothingIsWritten)
}

// TestSyncSecretOfManyKinds does the same with one in eleven of all flags, and with some of
// what is likely beside them. All of them take the race detector five seconds and more.
func TestSyncSecretOfManyKinds(t *testing.T) {
	t.Parallel()
	w, kinds := newFuzzedWorld(t), 0
	texts, uids := []string{"", "app", testUID, otherUID, "x", "a.b.c"}, []string{"", testUID, otherUID}
	for flags := uint16(0); flags < 1<<(liveAccount+2); flags += 11 {
		text := texts[kinds%len(texts)]
		w.syncUntilNothingIsWritten(t, "app", uids[kinds/2%len(uids)], texts[kinds/7%len(texts)], text, texts[kinds/5%len(texts)], "key", text,
			flags)
		if t.Failed() {
			t.Fatalf("flags %b", flags)
		}
		kinds++
	}
}

// fuzzedWorld is a world in front of an API that holds one Secret and one account.
type fuzzedWorld struct {
	*world
	live     *api
	bundle   *rootca.Bundle
	ownToken string
}

func newFuzzedWorld(t testing.TB) *fuzzedWorld {
	t.Helper()
	w := &fuzzedWorld{world: newWorld(t), live: &api{}, bundle: testBundle(t)}
	w.ownToken = controllertest.Token(t, testkeys.P256(), testUID, "token")
	w.OrphanGrace, w.Controller.Recorder = 0, nil
	w.Client.PrependReactor("*", "*", w.live.answer)
	return w
}

func (w *fuzzedWorld) syncUntilNothingIsWritten(t *testing.T, name, uid, token, ca, namespace, key, value string, flags uint16) {
	if flags&hasOwnToken != 0 {
		token = w.ownToken
	}
	w.live.t = t
	w.live.secret = secretOf(t, name, uid, token, ca, namespace, key, value, flags)
	w.live.account = accountOf(flags >> liveAccount)
	cached := accountOf(flags >> cachedAccount)
	w.RootCA = rootca.NewSource(w.bundle, nil) // which has written nothing yet
	if flags&withoutRootCA != 0 {
		w.RootCA = rootca.NewSource(nil, nil)
	}
	for range 5 {
		write := w.settle(t, w.live, cached)
		if write == nil {
			return
		}
		patch, ok := write.(clienttesting.PatchActionImpl)
		if !ok {
			checkDelete(t, w.live, write)
			return
		}
		after := controllertest.Merged(t, w.live.secret, patch.Patch)
		account := cached
		if !tokensecrets.Observe(w.live.secret).BelongsTo(cached) {
			account = w.live.account // which was asked for
		}
		checkPatch(t, w.live, after, account, w.world)
		after.ResourceVersion += "0"
		w.live.secret = after
	}
	t.Error("it is written again and again")
}

// settle is one sync of the Secret as it is, and the write that comes of it.
func (w *world) settle(t *testing.T, live *api, cached *corev1.ServiceAccount) clienttesting.Action {
	t.Helper()
	w.written.reset()
	accounts := []any{}
	if cached != nil {
		accounts = append(accounts, cached)
	}
	testutil.Must(t, w.accountInformer.GetIndexer().Replace(accounts, ""))
	w.Cache(t, live.secret)
	live.writes = nil
	testutil.Must(t, w.syncSecret(t.Context(), named("token")))
	testutil.Must(t, w.replaceCA(t.Context(), named("token")))
	w.Client.ClearActions()
	if len(live.writes) == 0 {
		return nil
	}
	if len(live.writes) > 1 {
		t.Fatalf("%d writes by one sync", len(live.writes))
	}
	return live.writes[0]
}

// accountOf is an account with one of two UIDs, one that is being deleted, or none.
func accountOf(which uint16) *corev1.ServiceAccount {
	switch which & 3 {
	case 1:
		return nil
	case 2:
		return account(recreated, madeAt(100))
	case 3:
		return account(controllertest.TerminatingAccount, madeAt(100))
	}
	return account(madeAt(100))
}

// secretOf is the Secret as it comes from kube-apiserver, which has valid UTF-8 only.
func secretOf(t *testing.T, name, uid, token, ca, namespace, key, value string, flags uint16) *corev1.Secret {
	t.Helper()
	secret := tokenSecret("token", createdAt(99))
	key, value = strings.ToValidUTF8(key, "?"), strings.ToValidUTF8(value, "?")
	secret.Annotations = map[string]string{key: value}
	secret.Labels = map[string]string{key: value, tokensecrets.LastUsedLabel: value}
	secret.Data[key] = []byte(value)
	secret.Annotations[corev1.ServiceAccountNameKey] = strings.ToValidUTF8(name, "?")
	for _, apply := range []struct {
		change func(*corev1.Secret)
		given  bool
	}{
		{boundTo(strings.ToValidUTF8(uid, "?")), uid != ""},
		{withData(corev1.ServiceAccountTokenKey, token), token != ""},
		{withData(corev1.ServiceAccountRootCAKey, ca), ca != ""},
		{withData(corev1.ServiceAccountNamespaceKey, namespace), namespace != ""},
		{withData(corev1.ServiceAccountRootCAKey, testCA), flags&hasOwnCA != 0},
		{immutable, flags&isImmutable != 0},
		{terminating, flags&isTerminating != 0},
		{invalidSince, flags&isInvalid != 0},
		{autoCreated, flags&isAuto != 0},
		{writtenBy(meta.FieldManager, fillFields), flags&filledByUs != 0},
		{createdAt(101), flags&isYounger != 0},
	} {
		if apply.given {
			apply.change(secret)
		}
	}
	return controllertest.Merged(t, secret, []byte(`{}`))
}

// checkPatch holds a write against the rules.
func checkPatch(t *testing.T, live *api, after *corev1.Secret, cached *corev1.ServiceAccount, w *world) {
	t.Helper()
	before := live.secret
	if after.UID != before.UID || after.ResourceVersion != before.ResourceVersion {
		t.Errorf("written to version %s of %s, decided on %s of %s", after.ResourceVersion, after.UID, before.ResourceVersion, before.UID)
	}
	if before.Immutable != nil || before.DeletionTimestamp != nil {
		t.Error("what is immutable or being deleted is written to")
	}
	others := after.DeepCopy()
	for _, key := range []string{corev1.ServiceAccountTokenKey, corev1.ServiceAccountRootCAKey, corev1.ServiceAccountNamespaceKey} {
		putBack(others.Data, before.Data, key)
	}
	for _, key := range []string{corev1.ServiceAccountNameKey, corev1.ServiceAccountUIDKey} {
		putBack(others.Annotations, before.Annotations, key)
	}
	testutil.Check(t, "what is not ours is changed", controllertest.Encoded(t, before), controllertest.Encoded(t, others))
	checkFill(t, before, after, cached, w)
}

// checkFill wants the Secret filled for the account that the cache knows, and nothing
// overwritten but ca.crt.
func checkFill(t *testing.T, before, after *corev1.Secret, cached *corev1.ServiceAccount, w *world) {
	t.Helper()
	if !names(before, cached) || cached.DeletionTimestamp != nil || !names(after, cached) ||
		after.Annotations[corev1.ServiceAccountUIDKey] != string(cached.UID) {
		t.Fatalf("filled for %v: %v, then %v", cached, before.Annotations, after.Annotations)
	}
	was, is := before.Data, after.Data
	if token := is[corev1.ServiceAccountTokenKey]; !bytes.Equal(token, was[corev1.ServiceAccountTokenKey]) {
		verified, err := tokens.VerifyLegacy(string(token), w.ring)
		if len(was[corev1.ServiceAccountTokenKey]) > 0 || before.Labels[tokensecrets.InvalidSinceLabel] != "" || err != nil ||
			verified.AccountUID != string(cached.UID) {
			t.Errorf("a token for %v (%v), over %q", verified, err, was[corev1.ServiceAccountTokenKey])
		}
	}
	bundle := testutil.Get(w.RootCA.Current())(t)
	if ca := is[corev1.ServiceAccountRootCAKey]; !bytes.Equal(ca, was[corev1.ServiceAccountRootCAKey]) &&
		(bundle == nil || string(ca) != testCA) {
		t.Errorf("ca.crt is %q", ca)
	}
	namespace, former := string(is[corev1.ServiceAccountNamespaceKey]), string(was[corev1.ServiceAccountNamespaceKey])
	if namespace != cmp.Or(former, testNamespace) {
		t.Errorf("namespace is %q, and was %q", namespace, former)
	}
}

func checkDelete(t *testing.T, live *api, write clienttesting.Action) {
	t.Helper()
	gone, ok := write.(clienttesting.DeleteActionImpl)
	if !ok {
		t.Fatalf("it is written otherwise: %v", write)
	}
	before, only := live.secret, gone.DeleteOptions.Preconditions
	if only == nil || *only.UID != before.UID || *only.ResourceVersion != before.ResourceVersion {
		t.Errorf("deleted with the preconditions %v", only)
	}
	if names(before, live.account) || before.DeletionTimestamp != nil ||
		len(validation.IsDNS1123Subdomain(before.Annotations[corev1.ServiceAccountNameKey])) > 0 {
		t.Errorf("deleted, though it is nobody's to delete: %s", controllertest.Encoded(t, before))
	}
}

// names reports whether the annotations name the account, and no other UID than its.
func names(secret *corev1.Secret, account *corev1.ServiceAccount) bool {
	uid := secret.Annotations[corev1.ServiceAccountUIDKey]
	return account != nil && secret.Annotations[corev1.ServiceAccountNameKey] == account.Name && (uid == "" || uid == string(account.UID))
}

func putBack[V any](into, from map[string]V, key string) {
	if value, was := from[key]; was {
		into[key] = value
		return
	}
	delete(into, key)
}
