// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package canary looks for tokens and private keys in everything that managers print.
package canary

import (
	"crypto/ecdsa"
	"crypto/rsa"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"os"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/util/keyutil"
	"sa-controller-manager/internal/testutil"
)

// Canary collects all that managers have said during the run, and all that must
// not be in it.
type Canary struct {
	mu      sync.Mutex
	texts   []said
	needles needles
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
	for _, token := range tokens {
		if parts := strings.Split(token, "."); len(parts) == 3 {
			c.needles.add("the payload of a token", parts[1])
			// In parts, so that 31 letters of it in a row are found.
			const part = 16
			for signature := parts[2]; len(signature) >= part; signature = signature[part:] {
				c.needles.add("a part of a signature", signature[:part])
			}
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
	if c.needles.addSecretsOf(pem) {
		return
	}
	taken := 0
	for line := range strings.Lines(string(pem)) {
		line = strings.TrimSpace(line)
		if len(line) >= 20 && !strings.HasPrefix(line, "-----") && taken < 3 {
			taken++
			c.needles.add("a line of a private key", line)
		}
	}
}

// Check looks for all that in everything that was said.
func (c *Canary) Check() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.needles.addBeginnings()
	pairs := make([]string, 0, 2*len(c.needles))
	for needle := range c.needles {
		pairs = append(pairs, needle, "")
	}
	remover := strings.NewReplacer(pairs...) // looks for all at a time
	var errs []error
	for _, said := range c.texts {
		for _, form := range []string{said.text, undumped(said.text)} {
			if without := remover.Replace(form); len(without) < len(form) {
				what, before := c.needles.first(form, without)
				errs = append(errs, fmt.Errorf("%s: %s after: %s", said.source, what, before))
			}
		}
	}
	return errors.Join(errs...)
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

// needles are what each text is that must be nowhere.
type needles map[string]string

func (n *needles) add(what, needle string) {
	if *n == nil {
		*n = needles{}
	}
	(*n)[needle] = what
}

// first is what the first needle in a text is, by the text without any, and the line before it.
func (n *needles) first(text, without string) (what, before string) {
	at := 0
	for at < len(without) && text[at] == without[at] {
		at++
	}
	for needle, is := range *n { // equal letters around it may hide its beginning
		if i := strings.Index(text[max(0, at-len(needle)):], needle); i >= 0 && i <= len(needle) {
			what, at = is, max(0, at-len(needle))+i
			break
		}
	}
	before = text[max(0, at-160):at]
	return what, before[strings.LastIndexByte(before, '\n')+1:]
}

// addBeginnings takes what every token and key begins with, whether it stands there as it
// is or as JSON has it in a Secret's data.
func (n *needles) addBeginnings() {
	const header = `{"alg":"`
	begin := base64.RawURLEncoding.EncodeToString([]byte(header))
	begin = begin[:len(begin)-1] // the last one depends on what follows, too
	encoded := base64.StdEncoding.EncodeToString([]byte(begin))
	n.add("a token", begin)
	n.add("a token in base64", encoded[:len(encoded)-4])
	n.add("a private key", "PRIVATE KEY-----")
	for _, kind := range []string{"RSA ", "EC ", ""} {
		n.add("PEM encoded as bytes", base64.StdEncoding.EncodeToString([]byte("-----BEGIN " + kind + "PRIVATE KEY--"))[:32])
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
	const window, digits, number = 12, 30, "a private number of a key"
	if secret == nil || secret.BitLen() < 8*2*window {
		return
	}
	if decimal := secret.String(); len(decimal) > digits {
		n.add(number, decimal[:digits])
	}
	all := secret.Bytes()
	for i := range len(all) - window + 1 {
		// From every byte, because where it stands in PEM or DER shifts the letters.
		part := all[i : i+window]
		n.add(number, base64.StdEncoding.EncodeToString(part))
		n.add(number, base64.URLEncoding.EncodeToString(part))
		if i%window == 0 {
			n.add(number, hex.EncodeToString(part))
			n.add(number, strings.ToUpper(hex.EncodeToString(part)))
			n.add(number, strings.Trim(fmt.Sprint(part), "[]")) // a []byte in %v
			n.add(number, string(part))
		}
	}
}
