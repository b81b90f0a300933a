// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecrets

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"sa-controller-manager/internal/meta"
	"sa-controller-manager/internal/testutil"
)

// mostKept bounds what is kept of a Secret's texts, by any writer: a name, a UID, a key ID and
// a few annotations.
const mostKept = 2 << 10

// FuzzObserve writes anything into what a user may write of a token Secret. Whatever it is, nothing
// of the token is kept, what is kept is short, and an annotation that is understood says the same
// once it is written again.
func FuzzObserve(f *testing.F) {
	good := legacyToken(f, robot(), "robot-token")
	f.Add("robot", accountUID, "side-by-side", "robot-token-x2x9z/uid", "true", meta.FieldManager, `{"f:type":{},"f:data":{"f:token":{}}}`,
		good)
	f.Add("robot", "", "in-place", "/", "", "kubectl", `{"f:type":{}}`, "")
	f.Add("Robot\n", "a\nb", "IN-PLACE", "a/b/c", "no", "kube-controller-manager", `{"f:data":{"f:token":{},"f:ca.crt":null}}`,
		good[:len(good)-20])
	f.Add("../robot", strings.Repeat("u", 5000), strings.Repeat("r", 3000), strings.Repeat("n", 3000)+"/u", "maybe", "", "null", "..")
	f.Add("robot", accountUID, "", "x/"+strings.Repeat("u", 3000), "0", "x", `{"f:type":`,
		rewrite(good, 0, `{"alg":"none","kid":"`+strings.Repeat("k", 5000)+`"}`))
	f.Add("robot", accountUID, "never", "", "1", "x", `[]`,
		rewrite(good, 1, `{"kubernetes.io/serviceaccount/service-account.uid":"`+strings.Repeat("k", 5000)+`"}`))
	f.Fuzz(func(t *testing.T, name, uid, reissue, replaces, keep, manager, fields, token string) {
		secret := tokenSecret(withToken(token), withAnnotation(corev1.ServiceAccountNameKey, name),
			withAnnotation(corev1.ServiceAccountUIDKey, uid),
			withAnnotation(ReissueAnnotation, reissue), withAnnotation(ReplacesAnnotation, replaces), withAnnotation(KeepAnnotation, keep),
			func(s *corev1.Secret) { s.ManagedFields = []metav1.ManagedFieldsEntry{wrote(manager, fields)} })
		observed := Observe(secret)
		testutil.Expect(t, observed.AccountName == "" || observed.AccountName == name && len(validation.IsDNS1123Subdomain(name)) == 0,
			"account %q from the annotation %q", observed.AccountName, name)
		testutil.Expect(t, (observed.AccountUID == "") == (uid == "") && (len(uid) > longestUID || string(observed.AccountUID) == uid),
			"UID %q from the annotation %q", observed.AccountUID, uid)
		testutil.Expect(t, len(reissue) > longestUID || observed.Reissue == reissue, "mode %q from the annotation %q", observed.Reissue,
			reissue)
		if p := observed.Predecessor; p != (Predecessor{}) && (p.String() != replaces || parsePredecessor(p.String()) != p) {
			t.Errorf("predecessor %q from %q", p, replaces)
		}
		testutil.Expect(t, !observed.CreatedByController || slices.Contains(tokenControllers, manager), "%q passes for a token controller",
			manager)
		kept := 0
		for _, text := range stringsIn(observed) {
			kept += len(text)
			for _, segment := range segments(token) {
				// What the annotations say is not the token's, and its key ID and UID are no
				// secrets.
				leak := common(text, segment)
				testutil.Expect(t, leak == "" || strings.Contains(name+uid+reissue+replaces+manager, leak) || !isSignature(token, segment),
					"%q of the token is in %q", leak, text)
			}
		}
		if manager := len(observed.TokenWriter); kept-manager > mostKept { // kube-apiserver bounds that one
			t.Errorf("%d bytes are kept", kept)
		}
		testutil.Expect(t, reflect.DeepEqual(Observe(secret), observed), "observed twice, the Secret is not the same")
	})
}

// isSignature: the last segment of three, which alone makes a token of what everybody may know.
func isSignature(token, segment string) bool {
	parts := strings.Split(token, ".")
	return len(parts) == 3 && parts[2] == segment
}

// stringsIn are the strings that the observation holds, each once.
func stringsIn(observed *TokenSecret) []string {
	seen := map[*byte]bool{}
	var texts []string
	walk(reflect.ValueOf(observed), func(text string) {
		if data := unsafe.StringData(text); text != "" && !seen[data] {
			seen[data] = true
			texts = append(texts, text)
		}
	})
	return texts
}

// window is how many bytes of a token in a row count as a leak. Base64 of this length cannot be in
// a sentence by chance.
const window = 12

func TestNothingOfATokenIsKept(t *testing.T) {
	t.Parallel()
	good := legacyToken(t, robot(), "robot-token")
	other := robot()
	other.Name, other.UID = "admin", "5d0e5c0e-71a3-4d0e-9f3b-1c2d3e4f5a6b"
	for name, token := range map[string]string{
		"Good":      good,
		"Foreign":   legacyToken(t, other, "admin-token"),
		"Cut":       good[:len(good)-20],
		"Respelled": good[:3] + "\t" + good[3:],
		"BadHeader": "x" + good,
		"Garbage":   "hunter2-correct-horse-battery-staple",
		"Huge":      strings.Repeat("correct-horse-battery-staple.", 9000),
	} {
		t.Run(name, func(t *testing.T) {
			secret := tokenSecret(withToken(token))
			observed := Observe(secret)
			for _, text := range renderings(t, observed) {
				for _, segment := range segments(token) {
					leak := common(text, segment)
					testutil.Expect(t, leak == "", "%q of the token is in %q", leak, text)
				}
				testutil.Expect(t, common(text, "certificate certificate") == "", "the CA is in %q", text)
			}
		})
	}
}

// segments are the parts of a token as they stand in the Secret, and the signature as bytes.
func segments(token string) []string {
	parts := strings.Split(token, ".")
	if signature, err := base64.RawURLEncoding.DecodeString(parts[len(parts)-1]); err == nil && len(parts) == 3 {
		parts = append(parts, string(signature))
	}
	var long []string
	for _, part := range parts[:min(len(parts), 8)] {
		if len(part) > window {
			long = append(long, part)
		}
	}
	return long
}

// common is some part of segment that is in text, of the length of the window.
func common(text, segment string) string {
	for from := range len(segment) - window + 1 {
		if part := segment[from : from+window]; strings.Contains(text, part) {
			return part
		}
	}
	return ""
}

// renderings is every text that an observation could end up as: printed, encoded, and each string
// or byte slice that is reachable from it, exported or not.
func renderings(t *testing.T, observed *TokenSecret) []string {
	t.Helper()
	encoded := testutil.Get(json.Marshal(observed))(t)
	texts := []string{fmt.Sprintf("%+v", observed), fmt.Sprintf("%#v", observed), fmt.Sprintf("%+v", observed.Token), string(encoded)}
	walk(reflect.ValueOf(observed), func(text string) { texts = append(texts, text) })
	return texts
}

func walk(value reflect.Value, visit func(string)) {
	switch value.Kind() {
	case reflect.String:
		visit(value.String())
	case reflect.Pointer, reflect.Interface:
		if !value.IsNil() {
			walk(value.Elem(), visit)
		}
	case reflect.Struct:
		for _, field := range value.Fields() {
			walk(field, visit)
		}
	case reflect.Map:
		for _, key := range value.MapKeys() {
			walk(key, visit)
			walk(value.MapIndex(key), visit)
		}
	case reflect.Slice, reflect.Array:
		var text strings.Builder
		for i := range value.Len() {
			if element := value.Index(i); element.Kind() == reflect.Uint8 {
				text.WriteByte(byte(element.Uint()))
				continue
			}
			walk(value.Index(i), visit)
		}
		visit(text.String())
	default: // numbers and the like hold no text
	}
}
