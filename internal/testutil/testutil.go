// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package testutil has what the unit tests of several packages share: a clock whose time of day
// jumps, an API server that refuses every connection, a log of Events, the series of a metrics
// registry, a file in a directory of its own, and a TestMain that finds leaked goroutines. Only tests
// may import it.
//
// Controllers have a package of their own beside it, controllers/controllertest, which knows
// their caches.
package testutil

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"
)

// Main runs the tests of a package and fails if goroutines are left, but for those that are known.
func Main(m *testing.M, known ...goleak.Option) {
	// klog flushes its buffers until the process ends.
	goleak.VerifyTestMain(m, append(known, goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))...)
}

// Check fails the test if got is not what it wants, compared with the options of go-cmp.
func Check(t testing.TB, what string, want, got any, options ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, options...); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// CheckContains fails the test if got does not contain what it wants.
func CheckContains(t testing.TB, what, want, got string) {
	t.Helper()
	if !strings.Contains(got, want) {
		t.Errorf("%s: got %q, want %q in it", what, got, want)
	}
}

// CheckError fails the test if err does not say what it wants, or is one and want is empty.
func CheckError(t testing.TB, what, want string, err error) {
	t.Helper()
	if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("%s: got error %v, want %q", what, err, want)
	}
}

// WriteFile makes a file in a directory of its own.
func WriteFile(t testing.TB, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	Must(t, os.WriteFile(path, content, 0o600))
	return path
}

// Start has run work until the test ends or stop is called, which wait until it has returned.
func Start(t testing.TB, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// Diary is what happened in a synctest bubble, with the time since it began. It is safe for
// concurrent use.
type Diary struct {
	Began time.Time
	mu    sync.Mutex
	lines []string
}

// NewDiary returns a diary that begins now.
func NewDiary() *Diary { return &Diary{Began: time.Now(), lines: []string{}} }

// Write adds a line.
func (d *Diary) Write(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, time.Since(d.Began).String()+" "+line)
}

// Lines returns all lines, once nothing moves any more.
func (d *Diary) Lines() []string {
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.lines)
}

// UnreachableClient is a client of an API server that refuses every connection. A fake clientset
// would not do: its watches begin with a list, those of a real client with a watch, which waits
// differently between two tries. It is safe for concurrent use.
func UnreachableClient(t testing.TB) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "https://unreachable", Transport: refuseConnections{}, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

type refuseConnections struct{}

func (refuseConnections) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
}

// EventLog is a sink of Events that keeps what it records. Its zero value is empty; it
// is safe for concurrent use.
type EventLog struct {
	mu    sync.Mutex
	known sets.Set[string]
	lines []string
}

// Event keeps a line "object: Type Reason: note". Client-go counts a repetition in the Event that is
// there, so it is no line of its own.
func (l *EventLog) Event(regarding runtime.Object, eventType, reason, note string) {
	ref := regarding.(*corev1.ObjectReference)
	line := fmt.Sprintf("%s: %s %s: %s", ref.Name, eventType, reason, note)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known == nil {
		l.known = sets.New[string]()
	}
	if key := ref.String() + line; !l.known.Has(key) {
		l.known.Insert(key)
		l.lines = append(l.lines, line)
	}
}

// Lines returns what was recorded, never nil. Each of replacements, as for strings.NewReplacer, is
// applied to it.
func (l *EventLog) Lines(replacements ...string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := make([]string, len(l.lines))
	for i, line := range l.lines {
		lines[i] = strings.NewReplacer(replacements...).Replace(line)
	}
	return lines
}

// Series returns the series of a registry whose names begin with prefix, as Prometheus reads them.
func Series(registry metrics.KubeRegistry, prefix string) []string {
	response := httptest.NewRecorder()
	metrics.HandlerFor(registry, metrics.HandlerOpts{}).ServeHTTP(response,
		httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/metrics", nil))
	lines := strings.Split(strings.TrimSpace(response.Body.String()), "\n")
	return slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(line, "#") || !strings.HasPrefix(line, prefix) })
}

// Expect fails the test unless ok. The message says what is wrong; its arguments are evaluated in any case.
func Expect(tb testing.TB, ok bool, format string, args ...any) {
	tb.Helper()
	if !ok {
		tb.Errorf(format, args...)
	}
}

// Require is like Expect, and ends the test.
func Require(tb testing.TB, ok bool, format string, args ...any) {
	tb.Helper()
	if !ok {
		tb.Fatalf(format, args...)
	}
}

// Must ends a test that cannot go on with an error.
func Must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// Get returns what a call has returned, which must have succeeded: testutil.Get(os.ReadFile(path))(t).
func Get[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		Must(t, err)
		return value
	}
}
