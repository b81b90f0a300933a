// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// TestOpenWith follows two files as one content, and asks what is wrong at each moment.
func TestOpenWith(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, second := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	write(t, first, "one")
	write(t, second, "two")
	both := func(path string) ([]byte, error) {
		a, err := ReadFile(path)
		if err != nil {
			return nil, err
		}
		b, err := ReadFile(filepath.Join(filepath.Dir(path), "b"))
		return append(a, b...), err
	}
	file, err := OpenWith(first, both, parseText, Options{Settle: 10 * time.Millisecond, Poll: 50 * time.Millisecond})
	must(t, err)
	if got := *file.Get(); got != "onetwo" || file.Refused() != nil {
		t.Fatalf("opened %q, refused %v", got, file.Refused())
	}
	told := make(chan string, 10)
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	running.Go(func() {
		file.Watch(ctx, func(value *string) { told <- *value }, func(err error) { told <- "-" + err.Error() })
	})
	expect := func(want string) {
		t.Helper()
		select {
		case got := <-told:
			if got != want {
				t.Errorf("told %q, want %q", got, want)
			}
		case <-time.After(15 * time.Second):
			t.Fatalf("not told %q within 15 s", want)
		}
	}
	write(t, second, "three")
	expect("onethree")
	must(t, os.Remove(second))
	expect("-read " + second + ": no such file or directory")
	if file.Refused() == nil || *file.Get() != "onethree" {
		t.Errorf("without the second file: %q, refused %v", *file.Get(), file.Refused())
	}
	write(t, second, "three")
	for deadline := time.Now().Add(15 * time.Second); file.Refused() != nil && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
	}
	if file.Refused() != nil {
		t.Errorf("the content in use is back, and refused: %v", file.Refused())
	}
	write(t, first, "bad")
	expect("-" + first + ": not good")
	write(t, first, "four")
	expect("fourthree")
	if file.Refused() != nil {
		t.Errorf("a good content is refused: %v", file.Refused())
	}
}
