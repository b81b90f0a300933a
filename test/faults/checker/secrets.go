// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package checker

import (
	"encoding/base64"
	"strings"
)

// Leak looks for a signature, as it stands in a token or as JSON has it in a Secret's
// data, for the beginning of any token, and for that of a private key. It does not repeat
// what it finds.
func Leak(printed string, seen Signatures) string {
	begin := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"`))
	begin = begin[:len(begin)-1] // the last one depends on what follows, too
	encoded := base64.StdEncoding.EncodeToString([]byte(begin))
	for what, text := range map[string]string{
		"a token": begin, "a token in base64": encoded[:len(encoded)-4], "a private key": "PRIVATE KEY-----",
	} {
		if strings.Contains(printed, text) {
			return what
		}
	}
	if seen.in(printed) {
		return "the signature of a token"
	}
	return ""
}

// Signatures are the signatures of tokens, by their length: tens of thousands are looked for in a
// hundred megabytes, which must be read once and not once for each.
type Signatures map[int]map[string]bool

// shortestSignature is less than any has, in base64url.
const shortestSignature = 40

// SignaturesOf returns the signatures of the tokens.
func SignaturesOf[V any](tokens map[string]V) Signatures {
	s := Signatures{}
	for token := range tokens {
		_, signature, _ := CutLast(token, ".")
		if len(signature) < shortestSignature {
			continue
		}
		if s[len(signature)] == nil {
			s[len(signature)] = map[string]bool{}
		}
		s[len(signature)][signature] = true
	}
	return s
}

// in reports whether the text holds one. Only what has the letters of base64url and is long
// enough is looked at closely.
func (s Signatures) in(text string) bool {
	for text != "" {
		end := strings.IndexFunc(text, notBase64URL)
		if end < 0 {
			end = len(text)
		}
		if end >= shortestSignature && s.within(text[:end]) {
			return true
		}
		text = text[min(end+1, len(text)):]
	}
	return false
}

// within looks at every place of a word.
func (s Signatures) within(word string) bool {
	for length, those := range s {
		for at := 0; at+length <= len(word); at++ {
			if those[word[at:at+length]] {
				return true
			}
		}
	}
	return false
}

func notBase64URL(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
}
