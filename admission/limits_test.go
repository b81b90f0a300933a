// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"errors"
	"io"
	"strings"
	"testing"
)

func TestBodyLimiter(t *testing.T) {
	t.Parallel()
	var shared bodyLimiter
	open := func(size int) *limitedBody {
		return &limitedBody{from: strings.NewReader(strings.Repeat("x", size)), limiter: &shared}
	}
	take := func(b *limitedBody) error {
		_, err := io.Copy(io.Discard, b)
		return err
	}
	greatest := open(maxBody)
	if err := take(greatest); err != nil {
		t.Fatalf("a body of the greatest size, alone: %v", err)
	}
	second := open(maxBody)
	if err := take(second); !errors.Is(err, errTooLarge) {
		t.Errorf("a second one beside it: %v, want %v", err, errTooLarge)
	}
	for range 1000 {
		if err := take(open(freeBody)); err != nil {
			t.Fatalf("a small one: %v", err)
		}
	}
	greatest.release()
	second.release()
	if left := shared.taken.Load(); left != 0 {
		t.Errorf("%d bytes are taken after the end", left)
	}
	if err := take(open(maxBody)); err != nil {
		t.Errorf("the next one: %v", err)
	}
}
