// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecrets

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// window is how many bytes of a token in a row count as a leak. Base64 of this length cannot be in
// a sentence by chance.
const window = 12

func TestNothingOfATokenIsKept(t *testing.T) {
	t.Parallel()
	good := legacyToken(t, robot(), "robot-token")
	other := robot()
	other.Name, other.UID = "admin", "5d0e5c0e-71a3-4d0e-9f3b-1c2d3e4f5a6b"
	cases := map[string]string{
		"Good":         good,
		"Foreign":      legacyToken(t, other, "admin-token"),
		"Cut":          good[:len(good)-20],
		"TwoSegments":  good[:strings.LastIndexByte(good, '.')],
		"FourSegments": good + ".c2VnbWVudA",
		"NewLine":      good + "\n",
		"Respelled":    good[:3] + "\t" + good[3:],
		"BadHeader":    "x" + good,
		"Garbage":      "hunter2-correct-horse-battery-staple",
		"Huge":         strings.Repeat("correct-horse-battery-staple.", 9000),
	}
	for name, token := range cases {
		t.Run(name, func(t *testing.T) {
			secret := tokenSecret(withToken(token))
			observed := Observe(secret)
			for _, text := range renderings(t, observed) {
				for _, segment := range segments(token) {
					if leak := common(text, segment); leak != "" {
						t.Errorf("%q of the token is in %q", leak, text)
					}
				}
				if common(text, "certificate certificate") != "" {
					t.Errorf("the CA is in %q", text)
				}
			}
		})
	}
}

// The test above is worth something only if its search finds what is there.
func TestTheSearchFindsLeaks(t *testing.T) {
	t.Parallel()
	token := legacyToken(t, robot(), "robot-token")
	for _, segment := range segments(token) {
		leaky := Observe(tokenSecret())
		leaky.Token = observedToken(segment[3:3+window], "")
		if !found(renderings(t, leaky), segment) {
			t.Errorf("%d bytes of %q went unnoticed behind a unique.Handle", window, segment)
		}
		leaky = Observe(tokenSecret())
		leaky.Finding = "beware of " + segment
		if !found(renderings(t, leaky), segment) {
			t.Errorf("%q went unnoticed in a string", segment)
		}
	}
}

func found(texts []string, segment string) bool {
	for _, text := range texts {
		if common(text, segment) != "" {
			return true
		}
	}
	return false
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
	encoded, err := json.Marshal(observed)
	if err != nil {
		t.Fatal(err)
	}
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
