// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// formsOf returns how a private key may stand in the memory of a program: its secret number in
// either byte order, and the text of its PEM form.
func formsOf(key []byte) ([][]byte, error) {
	block, _ := pem.Decode(key)
	if block == nil {
		return nil, errors.New("no PEM block")
	}
	var number []byte
	if parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
		number, err = secretOf(parsed)
		if err != nil {
			return nil, err
		}
	} else if parsed, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		number = parsed.Primes[0].Bytes()
	} else {
		return nil, err
	}
	reversed := slices.Clone(number)
	slices.Reverse(reversed)
	text := bytes.Split(key, []byte("\n"))
	return [][]byte{number, reversed, text[len(text)/2]}, nil
}

func secretOf(key any) ([]byte, error) {
	switch key := key.(type) {
	case *ecdsa.PrivateKey:
		return key.Bytes()
	case *rsa.PrivateKey:
		return key.Primes[0].Bytes(), nil
	}
	return nil, fmt.Errorf("a key of type %T", key)
}

// inMemory counts how often any of the needles is in the memory of a process, and says how many
// bytes it has read.
func inMemory(pid int, needles [][]byte) (found int, read int64, err error) {
	maps, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = maps.Close() }()
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = memory.Close() }()
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		var from, to int64
		var mode string
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x %s", &from, &to, &mode); err != nil {
			continue // the page of the kernel has an address of 64 bits
		}
		if !strings.HasPrefix(mode, "rw") {
			continue // nothing is written there
		}
		n, area, err := search(memory, from, to, needles)
		if err != nil {
			return 0, 0, fmt.Errorf("read the memory at %x: %w", from, err)
		}
		found, read = found+n, read+area
	}
	return found, read, lines.Err()
}

// search reads one area in parts that overlap by more than a needle.
func search(memory *os.File, from, to int64, needles [][]byte) (found int, read int64, err error) {
	const size, overlap = 4 << 20, 512
	part := make([]byte, size)
	for ; from < to; from += size - overlap {
		n, err := memory.ReadAt(part[:min(size, to-from)], from)
		if err != nil {
			return 0, 0, err
		}
		for _, needle := range needles {
			found += bytes.Count(part[:n], needle)
		}
		read += int64(n)
	}
	return found, read, nil
}
