// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"fmt"
	"os"
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
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
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
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
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
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
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
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
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
