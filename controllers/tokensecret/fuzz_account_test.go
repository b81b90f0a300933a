// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecret

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"sa-controller-manager/controllers/controllertest"
	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/testutil"
)

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
