// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"sa-controller-manager/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

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
	testutil.Must(t, err)
	w := &watched{File: file, told: make(chan string, 100)}
	w.stop = testutil.Start(t, func(ctx context.Context) error {
		file.Watch(ctx, func(value *string) {
			testutil.Expect(t, file.Get() == value, "accepted was called before the value was swapped in")
			w.told <- "+" + *value
		}, func(err error) { w.told <- "-" + strings.ReplaceAll(err.Error(), path, "PATH") })
		return nil
	})
	return w
}

func write(t *testing.T, path, content string) {
	t.Helper()
	testutil.Must(t, os.WriteFile(path, []byte(content), 0o600))
}

// newFile makes a file in a directory of its own.
func newFile(t *testing.T, content string) string {
	t.Helper()
	return testutil.WriteFile(t, "sa.key", []byte(content))
}
