// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/util/cert"

	"sa-controller-manager/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// authorities are certificates under names of one letter, so that a bundle is written as a word.
type authorities map[rune]*x509.Certificate

func newAuthorities(t testing.TB, names string) authorities {
	t.Helper()
	all := authorities{}
	for _, name := range names {
		parsed, err := cert.ParseCertsPEM(certificate(t, string(name)))
		testutil.Must(t, err)
		all[name] = parsed[0]
	}
	return all
}

func (a authorities) certificates(word string) []*x509.Certificate {
	var certificates []*x509.Certificate
	for _, name := range word {
		certificates = append(certificates, a[name])
	}
	return certificates
}

// pem is what a file with these certificates holds.
func (a authorities) pem(word string) string { return string(encodePEM(a.certificates(word)...)) }

func (a authorities) bundle(t testing.TB, word string) *Bundle {
	t.Helper()
	bundle, err := ParseBundle([]byte(a.pem(word)))
	testutil.Must(t, err)
	return bundle
}

// word is the reverse, in the order of the text.
func (a authorities) word(certificates []*x509.Certificate) string {
	var word strings.Builder
	for _, certificate := range certificates {
		name := '?'
		for candidate, known := range a {
			if known.Equal(certificate) {
				name = candidate
			}
		}
		word.WriteRune(name)
	}
	return word.String()
}

func (a authorities) read(text []byte) string {
	certificates, err := cert.ParseCertsPEM(text)
	if err != nil {
		return err.Error()
	}
	return a.word(certificates)
}

// state reads "B A@20m C@30m": the current certificates, and previous with the time from now at
// which they end.
func (a authorities) state(t testing.TB, text string, now time.Time) state {
	t.Helper()
	var s state
	for i, field := range strings.Fields(text) {
		if i == 0 {
			if field != "-" {
				s.file = a.bundle(t, field)
			}
			continue
		}
		name, after, _ := strings.Cut(field, "@")
		d, err := time.ParseDuration(after)
		testutil.Must(t, err)
		s.previous = append(s.previous, previousCert{a.certificates(name)[0], now.Add(d)})
	}
	return s
}

func (a authorities) describe(s state, now time.Time) string {
	fields := []string{"-"}
	if s.file != nil {
		fields[0] = a.word(s.current())
	}
	for _, f := range s.previous {
		fields = append(fields, fmt.Sprintf("%s@%v", a.word([]*x509.Certificate{f.certificate}), f.until.Sub(now)))
	}
	return strings.Join(fields, " ")
}

// sortedByDER is the word with its letters in the order of the certificates' bytes.
func (a authorities) sortedByDER(word string) string {
	letters := []rune(word)
	for i := range letters {
		for j := i + 1; j < len(letters); j++ {
			if bytes.Compare(a[letters[j]].Raw, a[letters[i]].Raw) < 0 {
				letters[i], letters[j] = letters[j], letters[i]
			}
		}
	}
	return string(letters)
}
