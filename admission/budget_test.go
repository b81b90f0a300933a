// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"errors"
	"io"
	"strings"
	"testing"
)

func TestBudget(t *testing.T) {
	t.Parallel()
	var shared budget
	open := func(size int) *budgeted {
		return &budgeted{from: strings.NewReader(strings.Repeat("x", size)), budget: &shared}
	}
	take := func(b *budgeted) error {
		_, err := io.Copy(io.Discard, b)
		return err
	}
	greatest := open(maxBody)
	if err := take(greatest); err != nil {
		t.Fatalf("a body of the greatest size, alone: %v", err)
	}
	second := open(maxBody)
	if err := take(second); !errors.Is(err, errBodyBudget) {
		t.Errorf("a second one beside it: %v, want %v", err, errBodyBudget)
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
