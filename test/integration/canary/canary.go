// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package canary looks for tokens and private keys in everything that managers print.
package canary

import (
	"crypto/ecdsa"
	"crypto/rsa"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/util/keyutil"
	"sa-controller-manager/internal/testutil"
)

// Canary collects all that managers have said during the run, and all that must
// not be in it.
type Canary struct {
	mu         sync.Mutex
	texts      []said
	signatures map[string]bool // second and third segments of tokens
	keyLines   []string        // lines of files that are damaged keys
	numbers    needles         // the private numbers of keys, and parts of signatures
}

// said is one text and who said it.
type said struct{ source, text string }

// Add records a text that must hold no secret, and its source.
func (c *Canary) Add(source, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.texts = append(c.texts, said{source, text})
}

// AddTokens records tokens that no text may hold.
func (c *Canary) AddTokens(tokens []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.signatures == nil {
		c.signatures = map[string]bool{}
	}
	for _, token := range tokens {
		if parts := strings.Split(token, "."); len(parts) == 3 {
			if !c.signatures[parts[2]] {
				c.numbers.addText(parts[2])
			}
			c.signatures[parts[1]], c.signatures[parts[2]] = true, true
		}
	}
}

// AddKeyFile records the private key in a file.
func (c *Canary) AddKeyFile(t *testing.T, path string) {
	t.Helper()
	pem := testutil.Get(os.ReadFile(path))(t)
	c.AddKey(pem)
}

// AddKey takes a private key as PEM and looks for its private numbers in all forms. Of
// what is no key, because a test has damaged it, three lines are looked for.
func (c *Canary) AddKey(pem []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.numbers.addSecretsOf(pem) {
		return
	}
	taken := 0
	for line := range strings.Lines(string(pem)) {
		line = strings.TrimSpace(line)
		if len(line) >= 20 && !strings.HasPrefix(line, "-----") && taken < 3 {
			taken++
			if !slices.Contains(c.keyLines, line) {
				c.keyLines = append(c.keyLines, line)
			}
		}
	}
}

// Check looks for all that in everything that was said.
func (c *Canary) Check() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, said := range c.texts {
		if what, where := c.Find(said.text); what != "" {
			errs = append(errs, fmt.Errorf("%s: %s: %s", said.source, what, where))
		}
	}
	return errors.Join(errs...)
}

// Find says what is in the text that must not be, "" if there is nothing, and where. Nothing may be recorded meanwhile.
func (c *Canary) Find(text string) (what, where string) {
	for _, form := range []string{text, undumped(text)} {
		for what, sign := range tokenSigns() {
			if at := strings.Index(form, sign); at >= 0 {
				return what, lineAround(form, at)
			}
		}
		if c.holdsSignature(form) {
			return "the payload or the signature of a token", "somewhere"
		}
		if at := c.numbers.find(form); at >= 0 {
			return "a part of a signature, or a private number of a key", "after " + lineAround(form[:at], at)
		}
		for _, line := range c.keyLines {
			if at := strings.Index(form, line); at >= 0 {
				return "a line of a private key", strings.ReplaceAll(lineAround(form, at), line, "[...]")
			}
		}
	}
	return "", ""
}

// tokenSigns are texts that every token begins with, whether it stands there as it
// is or as JSON has it in a Secret's data.
func tokenSigns() map[string]string {
	const header = `{"alg":"`
	begin := base64.RawURLEncoding.EncodeToString([]byte(header))
	begin = begin[:len(begin)-1] // the last one depends on what follows, too
	encoded := base64.StdEncoding.EncodeToString([]byte(begin))
	return map[string]string{
		"a token":                 begin,
		"a token in base64":       encoded[:len(encoded)-4],
		"a private key":           "PRIVATE KEY-----",
		"PEM encoded as bytes":    base64.StdEncoding.EncodeToString([]byte("-----BEGIN RSA PRIVATE KE")),
		"EC PEM encoded as bytes": base64.StdEncoding.EncodeToString([]byte("-----BEGIN EC PRIVATE KEY"))[:32],
		"PKCS#8 encoded as bytes": base64.StdEncoding.EncodeToString([]byte("-----BEGIN PRIVATE KEY--"))[:32],
	}
}

// holdsSignature looks at every run of base64url that is as long as the shortest
// signature, that of ES256. Payloads are longer.
func (c *Canary) holdsSignature(text string) bool {
	const shortest = 86
	begin := 0
	for i := 0; i <= len(text); i++ {
		if i < len(text) && isBase64URL(text[i]) {
			continue
		}
		if i-begin >= shortest && c.signatures[text[begin:i]] {
			return true
		}
		begin = i + 1
	}
	return false
}

func isBase64URL(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '-' || b == '_'
}

// undumped is the text that hex dumps show in their right column, in one piece.
// The lines are those of encoding/hex.Dump, which client-go prints protobuf in.
func undumped(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		line, dumped := strings.CutSuffix(strings.TrimRight(line, "\n"), "|")
		if !dumped {
			continue
		}
		const column = 16
		if bar := strings.IndexByte(line[max(0, len(line)-column-1):], '|'); bar >= 0 {
			b.WriteString(line[max(0, len(line)-column-1)+bar+1:])
		}
	}
	return b.String()
}

func lineAround(text string, where int) string {
	const before, after = 160, 40
	line := text[max(0, where-before):min(len(text), where+after)]
	return strings.ReplaceAll(line[strings.LastIndexByte(line[:min(before, where)], '\n')+1:], "\n", " ")
}

// needles are many short texts that are looked for in long ones at the same time. A
// text is looked at once, whatever their number.
type needles struct {
	bits [1 << 16]uint64 // which beginnings there are, with some that there are not
	all  map[uint64][]string
}

// begins is how much of a needle is looked up; none is shorter.
const begins = 8

func (n *needles) bit(beginning uint64) (word, mask uint64) {
	hash := beginning * 0x9E3779B97F4A7C15 >> 42
	return hash >> 6, 1 << (hash & 63)
}

func (n *needles) add(needle string) {
	beginning := binary.LittleEndian.Uint64([]byte(needle))
	if n.all == nil {
		n.all = map[uint64][]string{}
	}
	word, mask := n.bit(beginning)
	n.bits[word] |= mask
	n.all[beginning] = append(n.all[beginning], needle)
}

// find is where a needle begins in text, -1 if none is in it.
func (n *needles) find(text string) int {
	data := []byte(text)
	for i := range max(0, len(data)-begins+1) {
		beginning := binary.LittleEndian.Uint64(data[i:])
		if word, mask := n.bit(beginning); n.bits[word]&mask == 0 {
			continue
		}
		for _, needle := range n.all[beginning] {
			if strings.HasPrefix(text[i:], needle) {
				return i
			}
		}
	}
	return -1
}

// addText takes parts of a long text, so that 31 letters of it in a row are found.
func (n *needles) addText(text string) {
	const part = 16
	for ; len(text) >= part; text = text[part:] {
		n.add(text[:part])
	}
}

// addSecretsOf takes what makes a private key private, in every form that a number is
// printed in, and reports whether it could. What it shares with its public half is looked
// for nowhere.
func (n *needles) addSecretsOf(pem []byte) bool {
	parsed, err := keyutil.ParsePrivateKeyPEM(pem)
	if err != nil {
		return false
	}
	var secrets []*big.Int
	switch key := parsed.(type) {
	case *rsa.PrivateKey:
		secrets = append([]*big.Int{key.D, key.Precomputed.Dp, key.Precomputed.Dq, key.Precomputed.Qinv}, key.Primes...)
	case *ecdsa.PrivateKey:
		secret, err := key.Bytes()
		if err != nil {
			return false
		}
		secrets = []*big.Int{new(big.Int).SetBytes(secret)}
	}
	for _, secret := range secrets {
		n.addNumber(secret)
	}
	return len(secrets) > 0
}

func (n *needles) addNumber(secret *big.Int) {
	const window, digits = 12, 30
	if secret == nil || secret.BitLen() < 8*2*window {
		return
	}
	if decimal := secret.String(); len(decimal) > digits {
		n.add(decimal[:digits])
	}
	all := secret.Bytes()
	for i := range len(all) - window + 1 {
		// From every byte, because where it stands in PEM or DER shifts the letters.
		part := all[i : i+window]
		n.add(base64.StdEncoding.EncodeToString(part))
		n.add(base64.URLEncoding.EncodeToString(part))
		if i%window == 0 {
			n.add(hex.EncodeToString(part))
			n.add(strings.ToUpper(hex.EncodeToString(part)))
			n.add(strings.Trim(fmt.Sprint(part), "[]")) // a []byte in %v
			n.add(string(part))
		}
	}
}
