// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// parseText is the parse function of these tests. It returns a pointer, so that a test can tell one
// value from an equal one.
func parseText(data []byte) (*string, error) {
	text := string(data)
	if text == "" {
		return nil, errors.New("nothing there")
	}
	if strings.HasPrefix(text, "bad") {
		return nil, errors.New("not good")
	}
	return &text, nil
}

// watched is a file under Watch, with the calls of its callbacks.
type watched struct {
	*File[*string]

	told chan string // "+content" when accepted, "-error" when refused
	stop func()
}

// watch opens path and follows it until the test ends or stop is called.
func watch(t *testing.T, path string, options Options) *watched {
	t.Helper()
	file, err := Open(path, parseText, options)
	if err != nil {
		t.Fatal(err)
	}
	w := &watched{File: file, told: make(chan string, 100)}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		file.Watch(ctx, func(value *string) {
			if file.Get() != value {
				t.Error("accepted was called before the value was swapped in")
			}
			w.told <- "+" + *value
		}, func(err error) { w.told <- "-" + strings.ReplaceAll(err.Error(), path, "PATH") })
	})
	w.stop = func() { cancel(); running.Wait() }
	t.Cleanup(w.stop)
	return w
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newFile makes a file in a directory of its own.
func newFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sa.key")
	write(t, path, content)
	return path
}
