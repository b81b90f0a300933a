// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"sa-controller-manager/internal/testutil"
)

// These tests run on a false clock, with notifications sent by hand or none at all, so each moment
// between two writes can be hit. The files are real.

// manual is a notifier that the test rings.
type manual struct{ signal chan struct{} }

func (m manual) changes() <-chan struct{} { return m.signal }
func (m manual) renew()                   {}
func (m manual) close()                   {}

// deaf stands for a machine where fsnotify cannot be set up.
func deaf(string) notifier { return manual{} }

// watched is a file under Watch, with the calls of its callbacks.
type watched struct {
	*File[*string]

	told chan string // "+content" when accepted, "-error" when refused
	stop func()
}

// all returns everything told so far.
func (w *watched) all() []string {
	synctest.Wait()
	told := []string{}
	for {
		select {
		case one := <-w.told:
			told = append(told, one)
		default:
			return told
		}
	}
}

func (w *watched) expectAll(t *testing.T, when string, want ...string) {
	t.Helper()
	testutil.Check(t, when+": told", append([]string{}, want...), w.all())
}

// pass lets the false clock run.
func pass(d time.Duration) { <-time.After(d) }

const promised = 15 * time.Second // any change is seen within this time

func TestPollAlone(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		path := newFile(t, "one")
		w := watch(t, path, Options{newNotifier: deaf})
		defer w.stop()
		for i := range 5 {
			// Each change comes at another moment of the poll's period.
			pass(time.Duration(i)*2100*time.Millisecond + time.Minute)
			content := fmt.Sprint("version ", i)
			write(t, path, content)
			pass(promised)
			w.expectAll(t, content, "+"+content)
		}
	})
}

func TestRefusedOncePerContent(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		path := newFile(t, "one")
		w := watch(t, path, Options{newNotifier: deaf})
		defer w.stop()
		first := w.Get()
		remove := func() { testutil.Must(t, os.Remove(path)) }
		steps := []struct {
			name string
			do   func()
			want []string
		}{
			{"touched", func() { write(t, path, "one") }, nil},
			{"bad", func() { write(t, path, "bad 1") }, []string{"-PATH: not good"}},
			{"another bad one", func() { write(t, path, "bad 2") }, []string{"-PATH: not good"}},
			{"missing", remove, []string{"-read PATH: no such file or directory"}},
			{"a directory", func() { testutil.Must(t, os.Mkdir(path, 0o700)) }, []string{"-read PATH: is a directory, not a file"}},
			{"missing again", remove, []string{"-read PATH: no such file or directory"}},
			{"back to the good one", func() { write(t, path, "one") }, nil},
			{"the first bad one again", func() { write(t, path, "bad 1") }, []string{"-PATH: not good"}},
			{"the good one in between", func() { write(t, path, "one") }, nil},
			{"and the bad one once more", func() { write(t, path, "bad 1") }, []string{"-PATH: not good"}},
			{"too large", func() { testutil.Must(t, os.Truncate(path, maxSize+1)) }, []string{"-read PATH: is larger than 8388608 bytes"}},
			{"empty", func() { testutil.Must(t, os.Truncate(path, 0)) }, []string{"-PATH: nothing there"}},
			{"back again", func() { write(t, path, "one") }, nil},
		}
		for _, step := range steps {
			step.do()
			pass(5 * time.Minute) // many polls
			w.expectAll(t, step.name, step.want...)
			testutil.Expect(t, w.Get() == first, "%s: the value is not the one it was", step.name)
		}
		write(t, path, "two")
		pass(promised)
		w.expectAll(t, "good", "+two")
	})
}

// TestHalfWritten looks at a file while it is rewritten slowly, with a notification for every
// write, as inotify sends them.
func TestHalfWritten(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		path := newFile(t, "one")
		bell := manual{make(chan struct{})}
		w := watch(t, path, Options{newNotifier: func(string) notifier { return bell }})
		defer w.stop()
		pass(time.Second)

		testutil.Must(t, os.Truncate(path, 0))
		bell.signal <- struct{}{}
		pass(defaultSettle + time.Millisecond) // it is seen empty once
		write(t, path, "tw")
		bell.signal <- struct{}{}
		pass(defaultSettle + time.Millisecond) // it is seen half written once
		write(t, path, "two")
		bell.signal <- struct{}{}
		w.expectAll(t, "while it is written")
		pass(2 * defaultSettle)
		w.expectAll(t, "when it is written", "+two")
	})
}

// TestNeverQuiet writes to the file without a pause, and to its directory more often than it
// settles. Neither may keep the change from being seen in the promised time.
func TestNeverQuiet(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		path := newFile(t, "one")
		bell := manual{make(chan struct{})}
		w := watch(t, path, Options{newNotifier: func(string) notifier { return bell }})
		defer w.stop()
		for i := range 300 {
			write(t, path+".tmp", fmt.Sprint("version ", i))
			testutil.Must(t, os.Rename(path+".tmp", path)) // the watch may read at this very moment
			bell.signal <- struct{}{}
			pass(promised / 300)
		}
		synctest.Wait()
		testutil.Expect(t, len(w.told) != 0, "a file that changes all the time was not reported")
	})
}

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

// watch opens path and follows it until the test ends or stop is called.
func watch(t *testing.T, path string, options Options) *watched {
	t.Helper()
	file := testutil.Get(Open(path, parseText, options))(t)
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

// These tests prove that notifications alone are enough: the poll is an hour away. The files are
// real.
var notified = Options{Poll: time.Hour, Settle: 20 * time.Millisecond}

// expect waits for the next thing told. What has not come after the time an operator is promised is
// lost.
func (w *watched) expect(t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-w.told:
		testutil.Expect(t, got == want, "told %q, want %q", got, want)
	case <-time.After(15 * time.Second):
		t.Fatalf("not told %q within 15 s", want)
	}
}

func TestWatchSeesTheWaysFilesChange(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		change func(path string) error
	}{
		"rewritten": {"shell redirection, cp", func(path string) error {
			return os.WriteFile(path, []byte("two"), 0o600)
		}},
		"renamed over": {"editors, atomic writers", func(path string) error {
			return errors.Join(
				os.WriteFile(path+".tmp", []byte("two"), 0o600),
				os.Rename(path+".tmp", path))
		}},
		"replaced by a link": {"ln -sf", func(path string) error {
			return errors.Join(
				os.WriteFile(path+".v2", []byte("two"), 0o600),
				os.Symlink(path+".v2", path+".link"),
				os.Rename(path+".link", path))
		}},
		"same time stamp and size": {"the content decides", func(path string) error {
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			return errors.Join(
				os.WriteFile(path, []byte("two"), 0o600),
				os.Chtimes(path, info.ModTime(), info.ModTime()))
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := newFile(t, "one")
			w := watch(t, path, notified)
			testutil.Must(t, tc.change(path))
			w.expect(t, "+two")
			got := *w.Get()
			testutil.Expect(t, got == "two", "%s: Get returns %q", tc.reason, got)
		})
	}
}

// TestWatchSecretVolume changes a file the way kubelet updates a Secret volume: the file is a link
// through ..data, and ..data is a link that is renamed over (k8s.io/kubernetes
// pkg/volume/util/atomic_writer.go).
func TestWatchSecretVolume(t *testing.T) {
	t.Parallel()
	volume := t.TempDir()
	publish := func(version, content string) {
		t.Helper()
		dir := filepath.Join(volume, "..2026_01_01."+version)
		testutil.Must(t, os.Mkdir(dir, 0o700))
		write(t, filepath.Join(dir, "sa.key"), content)
		testutil.Must(t, os.Symlink(filepath.Base(dir), filepath.Join(volume, "..data_tmp")))
		testutil.Must(t, os.Rename(filepath.Join(volume, "..data_tmp"), filepath.Join(volume, "..data")))
	}
	publish("1", "one")
	path := filepath.Join(volume, "sa.key")
	testutil.Must(t, os.Symlink(filepath.Join("..data", "sa.key"), path))
	w := watch(t, path, notified)

	publish("2", "two")
	testutil.Must(t, os.RemoveAll(filepath.Join(volume, "..2026_01_01.1")))
	w.expect(t, "+two")
	publish("3", "three")
	w.expect(t, "+three")
}

func TestNotifierWithoutDirectory(t *testing.T) {
	t.Parallel()
	n := newDirNotifier(filepath.Join(t.TempDir(), "not", "there"))
	n.renew()
	n.close()
	(&dirNotifier{}).close() // fsnotify could not be set up
}

func TestOpen(t *testing.T) {
	t.Parallel()
	path := newFile(t, strings.Repeat("x", maxSize)) // the largest one
	file, err := Open(path, parseText, Options{})
	testutil.Expect(t, err == nil && len(*file.Get()) == maxSize && file.Path() == path, "Open returned %v, %v", file, err)
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	errParse := errors.New("boom")
	nothing := func(string) error { return nil }
	content := func(text string) func(string) error {
		return func(path string) error { return os.WriteFile(path, []byte(text), 0o600) }
	}
	cases := map[string]struct {
		reason string
		make   func(path string) error
		want   string
		is     error
	}{
		"missing": {"names the path", nothing, "read PATH: no such file or directory", fs.ErrNotExist},
		"directory": {
			"it has no content", func(path string) error { return os.Mkdir(path, 0o700) }, "read PATH: is a directory, not a file", nil,
		},
		"pipe": {
			"opening it would wait for a writer", func(path string) error { return syscall.Mkfifo(path, 0o600) },
			"read PATH: is not a regular file",
			nil,
		},
		"dangling link": {
			"a volume that is not filled yet", func(path string) error { return os.Symlink("gone", path) },
			"read PATH: no such file or directory",
			fs.ErrNotExist,
		},
		"link to itself": {
			"no endless loop", func(path string) error { return os.Symlink("f", path) }, "read PATH: too many levels of symbolic links",
			nil,
		},
		"too large":   {"8 MiB and a byte", content(strings.Repeat("x", maxSize+1)), "read PATH: is larger than 8388608 bytes", nil},
		"bad content": {"the error of parse", content("bad secret"), "PATH: boom", errParse},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "f")
			testutil.Must(t, tc.make(path))
			file, err := Open(path, func([]byte) (*string, error) { return nil, errParse }, Options{})
			testutil.Require(t, err != nil && file == nil, "%s: Open returned %v, %v", tc.reason, file, err)
			got := strings.ReplaceAll(err.Error(), path, "PATH")
			testutil.Expect(t, got == tc.want, "%s: error is %q, want %q", tc.reason, got, tc.want)
			testutil.Expect(t, tc.is == nil || errors.Is(err, tc.is), "%s: error %v does not wrap %v", tc.reason, err, tc.is)
		})
	}
}
