// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestBodyLimiter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var shared bodyLimiter
		endless := func(size int) *limitedBody {
			b := &limitedBody{
				from: strings.NewReader(strings.Repeat("x", size)), limiter: &shared, setDeadline: func(time.Time) {},
			}
			if _, err := b.Read(make([]byte, size)); err != nil {
				t.Fatalf("a body of %d bytes: %v", size, err)
			}
			return b
		}
		complete := func(size int) *limitedBody {
			b := endless(size)
			if _, err := b.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Fatalf("a body of %d bytes: %v, want its end", size, err)
			}
			return b
		}
		isCut := func(b *limitedBody) bool {
			_, err := b.Read(make([]byte, 1))
			return errors.Is(err, errTooLarge)
		}

		old := endless(100 << 10)
		time.Sleep(sharedGrace + 1)
		young := endless(maxBody - 128<<10)
		last := endless(freeBody + 64<<10)
		if !isCut(old) {
			t.Error("the one that has arrived for longest is not cut")
		}
		latest := endless(maxBody / 2)
		if !isCut(young) {
			t.Error("the larger one is not cut while none has arrived for long")
		}
		for _, b := range []*limitedBody{last, latest} {
			if isCut(b) {
				t.Errorf("one of %d bytes is cut although there is room for it", b.read)
			}
		}
		latest.release()

		decided := complete(maxBody - 128<<10)
		late := &limitedBody{from: strings.NewReader(strings.Repeat("x", maxBody)), limiter: &shared, setDeadline: func(time.Time) {}}
		if _, err := late.Read(make([]byte, maxBody)); !errors.Is(err, errTooLarge) {
			t.Errorf("beside a complete one: %v, want %v", err, errTooLarge)
		}
		for range 1000 {
			complete(freeBody)
		}
		for _, b := range []*limitedBody{old, young, last, decided, late} {
			b.release()
		}
		if shared.taken != 0 || len(shared.arriving) > 0 {
			t.Errorf("%d bytes are taken after the end, and %d bodies arrive", shared.taken, len(shared.arriving))
		}
		complete(maxBody).release()
	})
}
