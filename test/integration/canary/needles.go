// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package canary

import (
	"crypto/ecdsa"
	"crypto/rsa"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/big"
	"strings"

	"k8s.io/client-go/util/keyutil"
)

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
