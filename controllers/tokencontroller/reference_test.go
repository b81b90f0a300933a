// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokencontroller

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"sa-controller-manager/controllers/controllertest"
	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/meta"
	"sa-controller-manager/internal/testutil"
)

func TestSyncReference(t *testing.T) {
	t.Parallel()
	observed := referenceKey{Secret: named("token"), Account: "app", AccountUID: testUID, Observed: true}
	swept := referenceKey{Secret: named("token"), Account: "app", AccountUID: testUID}
	removes := "patch serviceaccounts app [uid-app 10] delete token"
	opaque := tokenSecret("token", func(secret *corev1.Secret) { secret.Type = corev1.SecretTypeOpaque })
	ours := listed(meta.FieldManager, "token")
	anothers := anothersToken()
	tests := map[string]struct {
		reason  string
		key     referenceKey
		account *corev1.ServiceAccount
		cached  *corev1.Secret
		live    *corev1.Secret
		refusal error
		want    []string
	}{
		"Observed": {
			reason:  "a delete that was seen needs no second check, if the entry is a token controller's",
			key:     referenceKey{Secret: named("app-token-bcdfg"), Account: "app", AccountUID: testUID, Observed: true},
			account: account(referencing("first"), listed(meta.FieldManager, "app-token-bcdfg"), referencing("last")),
			want:    []string{"patch serviceaccounts app [uid-app 10] delete app-token-bcdfg"},
		},
		"ObservedAndAUsers": {
			reason: "as upstream does, if nothing bears its name", key: observed, account: account(referencing("first", "token", "last")),
			want: []string{"get secrets token", removes},
		},
		"ObservedAndReplaced": {
			reason: "what bears its name now is what the person means, and it may never come into this cache", key: observed,
			account: account(referencing("token")), live: opaque, want: []string{"get secrets token"},
		},
		"ObservedWithoutUID": {
			reason: "a Secret that was never filled was nobody's, and the entry is for one to come",
			key:    referenceKey{Secret: named("token"), Account: "app"}, account: account(referencing("token")),
		},
		"ObservedWithoutUIDAndOurs": {
			reason: "who wrote the entry is known", key: referenceKey{Secret: named("token"), Account: "app"}, account: account(ours),
			want: []string{"get secrets token", removes},
		},
		"Conflict": {
			reason: "no later event would queue this key", key: observed, account: account(ours), want: []string{removes},
			refusal: controllertest.Conflict("serviceaccounts"),
		},
		"NotReferenced": {reason: "nothing to remove", key: observed, account: account(referencing("other"))},
		"AccountRecreated": {
			reason: "the new account's entry is for a Secret to come", key: observed, account: account(recreated, referencing("token")),
		},
		"CreatedAgain": {
			reason: "the reference is right again", key: observed, account: account(referencing("token")), cached: tokenSecret("token"),
		},
		"CreatedAgainForAnother": {
			reason: "its deletion would not queue this key", key: observed, account: account(ours), cached: anothers, want: []string{removes},
		},
		"CreatedAgainForAnotherAndAUsers": {
			reason: "the person may mean what bears the name now", key: observed, account: account(referencing("token")), cached: anothers,
		},
		"SweptAndAnothers": {reason: "likewise", key: swept, account: account(ours), cached: anothers, want: []string{removes}},
		"Swept": {
			reason: "found missing at the start and confirmed", key: swept, account: account(ours), want: []string{"get secrets token", removes},
		},
		"SweptButOfAnotherType": {
			reason: "it was never in this cache", key: swept, account: account(ours), live: opaque, want: []string{"get secrets token"},
		},
		"SweptButNobodys": {
			reason: "when it was queued the entry was a token controller's; a user has written it since", key: swept,
			account: account(referencing("token")),
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.account)
			w.Cache(t, tc.account)
			if tc.cached != nil {
				w.Cache(t, tc.cached)
			}
			if tc.live != nil {
				w.Live(t, tc.live)
			}
			w.FailNext("patch", "serviceaccounts", tc.refusal)
			if err := w.syncReference(t.Context(), tc.key); !errors.Is(err, tc.refusal) {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			testutil.Check(t, tc.reason+": actions", tc.want, w.Actions(t))
			var events []string
			if len(tc.want) > 0 && tc.refusal == nil && strings.HasPrefix(tc.want[len(tc.want)-1], "patch") {
				events = []string{"Normal TokenReferenceRemoved"}
			}
			testutil.Check(t, tc.reason+": events", events, w.Events())
		})
	}
}

func TestReferenceThatIsNotCachedYet(t *testing.T) {
	t.Parallel()
	w := newWorld(t, account())
	w.Auto = true
	w.Cache(t, account())
	w.syncsAccount(t, "a new account", createsOwn, referencesOwn)
	err := w.syncReference(t.Context(), referenceKey{Secret: named("app-token-bcdfg"), Account: "app", Observed: true})
	if !errors.Is(err, errAccountBehind) {
		t.Errorf("our own reference does not show yet and would dangle forever: got %v, want %v", err, errAccountBehind)
	}
}

// anothersToken is the Secret token of the account other.
func anothersToken() *corev1.Secret {
	return tokenSecret("token", func(secret *corev1.Secret) { secret.Annotations[corev1.ServiceAccountNameKey] = "other" })
}

// TestSweep checks which references to missing Secrets are looked at when the
// controller starts.
func TestSweep(t *testing.T) {
	t.Parallel()
	ours := listed(meta.FieldManager, "token")
	tests := map[string]struct {
		reason  string
		account *corev1.ServiceAccount
		cached  *corev1.Secret
		want    bool
	}{
		"WrittenByUs":     {reason: "managedFields prove it", account: account(listed("sa-controller-manager", "custom")), want: true},
		"WrittenAndThere": {reason: "not missing", account: account(listed("sa-controller-manager", "custom")), cached: tokenSecret("custom")},
		"Anothers":        {reason: "its name was taken", account: account(ours), cached: anothersToken(), want: true},
		"UsersOwn":        {reason: "a user may list a Secret that is yet to come", account: account(referencing("custom"))},
		"NoName":          {reason: "no request can be made of it", account: account(listed("sa-controller-manager", "no/name"))},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.Cache(t, tc.account)
			if tc.cached != nil {
				w.Cache(t, tc.cached)
			}
			got := len(w.dangling(tc.account)) > 0
			if got != tc.want {
				t.Errorf("%s: looked at: %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}

// FuzzReferences changes lists of references as kube-apiserver does. Of what is not meant
// nothing changes, nor its order, unless it repeats a name.
func FuzzReferences(f *testing.F) {
	for _, list := range []string{"", "new", "b,a,c", "b,a,new", "b,,new", ",a,", "a!,b", "new!,a", "a,a,new,new"} {
		for which := range uint8(3) {
			f.Add(list, "new", which)
		}
	}
	f.Fuzz(func(t *testing.T, list, secret string, which uint8) {
		secret = strings.ToValidUTF8(secret, "?")
		if secret == "" {
			return // no Secret is called that
		}
		before := referencingAll(t, list)
		var patch ReferencePatch
		var err error
		want := withoutReference(before, secret)
		switch which % 3 {
		case 0:
			if tokensecrets.References(before, secret) {
				return // nobody adds it then
			}
			patch, err = addReference(before, secret)
			want = slices.Insert(want, 0, corev1.ObjectReference{Name: secret})
		case 1:
			patch, err = ReferenceFirst(before, secret)
			want = slices.Insert(want, 0, corev1.ObjectReference{Name: secret})
		default:
			patch, err = removeReference(before, secret)
		}
		testutil.Must(t, err)
		after := applied(t, before, patch)
		if after.UID != before.UID || after.ResourceVersion != before.ResourceVersion {
			t.Errorf("the patch is for another version: %s", patch.Body)
		}
		got := slices.Clone(after.Secrets)
		for i := range got {
			if got[i].Name == secret {
				got[i] = corev1.ObjectReference{Name: secret} // what else it says may stay
			}
		}
		for len(got) > 1 && got[0].Name == secret && got[1] == got[0] {
			got = got[1:] // and one that was there twice may be so yet
		}
		if repeats(want) {
			// A merge puts what is repeated together.
			slices.SortStableFunc(want, byName)
			slices.SortStableFunc(got, byName)
		}
		if len(want)+len(got) > 0 && !slices.Equal(want, got) {
			t.Errorf("%q, changed by %s: got %v, want %v", list, patch.Body, got, want)
		}
		after.Secrets = before.Secrets
		testutil.Check(t, "changed besides", controllertest.Encoded(t, before), controllertest.Encoded(t, after))
	})
}

func byName(a, b corev1.ObjectReference) int { return strings.Compare(a.Name, b.Name) }

func repeats(references []corev1.ObjectReference) bool {
	seen := map[string]bool{}
	return slices.ContainsFunc(references, func(ref corev1.ObjectReference) bool {
		again := seen[ref.Name]
		seen[ref.Name] = true
		return again
	})
}

// referencingAll is an account with the names of the list, of which those with a "!" say
// more than a name, and with fields that are not ours.
func referencingAll(t *testing.T, list string) *corev1.ServiceAccount {
	t.Helper()
	account := account(func(account *corev1.ServiceAccount) {
		account.Labels, account.Annotations = map[string]string{"l": "1"}, map[string]string{"a": "2"}
		account.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull"}, {Name: "new"}}
		account.AutomountServiceAccountToken = new(false)
	})
	if list == "" {
		return account
	}
	for name := range strings.SplitSeq(strings.ToValidUTF8(list, "?"), ",") {
		reference := corev1.ObjectReference{Name: name}
		if short, more := strings.CutSuffix(name, "!"); more {
			reference = corev1.ObjectReference{Name: short, Kind: "Secret", UID: "u", FieldPath: "data"}
		}
		account.Secrets = append(account.Secrets, reference)
	}
	return account
}

// applied does as kube-apiserver with a patch of an account.
func applied(t *testing.T, before *corev1.ServiceAccount, patch ReferencePatch) *corev1.ServiceAccount {
	t.Helper()
	apply := jsonpatch.MergePatch
	if patch.Type == types.StrategicMergePatchType {
		apply = func(before, patch []byte) ([]byte, error) {
			return strategicpatch.StrategicMergePatch(before, patch, corev1.ServiceAccount{})
		}
	}
	body, err := apply([]byte(controllertest.Encoded(t, before)), patch.Body)
	if err != nil {
		t.Fatalf("%s: %v", patch.Body, err)
	}
	after := &corev1.ServiceAccount{}
	if err := json.Unmarshal(body, after); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return after
}
