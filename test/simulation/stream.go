// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"cmp"
	"container/heap"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"sa-controller-manager/test/simulation/model"
)

// stream is a watch on its way to a client. Its events come in order, each in its time.
type stream struct {
	client *client
	watch  *model.Watch
	name   string
	body   *body
	began  time.Time
	last   time.Time // when the last event comes
	ended  bool
}

// stream begins one. The seed decides when it is cut.
func (n *network) stream(c *call, w *model.Watch) *body {
	n.mu.Lock()
	calm := n.calm
	n.mu.Unlock()
	name := fmt.Sprintf("%s watch %s", c.client.name, w.Resource())
	s := &stream{client: c.client, watch: w, name: name, body: newBody(), began: time.Now(), last: time.Now()}
	s.body.closed = func() {
		n.mu.Lock()
		n.closed = append(n.closed, s)
		n.mu.Unlock()
		n.wakeUp()
	}
	n.streams[w] = s
	n.server.Begin(w)
	// Not what the client asks for, which is drawn in the order in which goroutines come.
	random := n.draw(name)
	lives := 5*time.Minute + time.Duration(random.Int64N(int64(5*time.Minute)))
	if !calm && random.IntN(3) == 0 {
		lives = min(lives, time.Duration(random.Int64N(int64(2*time.Minute))))
	}
	n.cutAt(s, time.Now().Add(lives))
	n.bookmark(s)
	return s.body
}

// bookmark sends one a minute.
func (n *network) bookmark(s *stream) {
	n.at(time.Now().Add(time.Minute), "", func() {
		if !s.ended {
			n.server.Bookmark(s.watch)
			n.bookmark(s)
		}
	})
}

func (n *network) at(due time.Time, name string, do func()) {
	heap.Push(&n.agenda, &thing{name: name, due: due, do: func(fate) string { do(); return "" }})
}

func (n *network) cut(s *stream, why error) {
	if s.ended {
		return
	}
	s.ended = true
	n.server.End(s.watch)
	delete(n.streams, s.watch)
	s.body.end(why)
}

func (n *network) cutAt(s *stream, at time.Time) {
	heap.Push(&n.agenda, &thing{name: s.name + " is cut", due: at, do: func(fate) string {
		if s.ended {
			return nothing
		}
		n.cut(s, io.ErrUnexpectedEOF)
		return ""
	}})
}

// cutAll cuts the watches of a resource, "" for all, of the clients whose names begin so, one after the other.
func (n *network) cutAll(client, resource string) {
	var all []*stream
	for _, s := range n.streams {
		if !s.client.user && strings.HasPrefix(s.client.name, client) && (resource == "" || resource == s.watch.Resource()) {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *stream) int { return cmp.Or(strings.Compare(a.name, b.name), a.began.Compare(b.began)) })
	for i, s := range all {
		n.cutAt(s, time.Now().Add(time.Duration(i)*100*time.Microsecond))
	}
}

// push plans when an event comes: soon, or late, as the seed has it, and not before those that came earlier.
func (n *network) push(w *model.Watch, event model.Event) {
	s := n.streams[w]
	n.mu.Lock()
	calm := n.calm
	n.mu.Unlock()
	name := s.name + ": " + event.String()
	random := n.draw(name)
	due := time.Now().Add(n.behind(s.client.name) + time.Millisecond + time.Duration(random.Int64N(int64(10*time.Millisecond))))
	if !calm && random.IntN(100) < 3 {
		due = due.Add(time.Duration(random.Int64N(int64(3 * time.Second))))
	}
	n.mu.Lock()
	for _, f := range n.faults {
		if until := f.stalls(s); due.Before(until) {
			due = until
		}
	}
	n.mu.Unlock()
	if !due.After(s.last) {
		due = s.last.Add(time.Microsecond)
	}
	s.last = due
	heap.Push(&n.agenda, &thing{name: name, due: due, do: func(fate) string {
		if s.ended {
			return nothing
		}
		s.body.write(s.watch.Encode(event))
		n.told(s.client.name, s.watch.Resource(), event)
		if event.What == watch.Error {
			n.cut(s, io.EOF)
		}
		return ""
	}})
}

// body is the body of a watch's answer.
type body struct {
	closed func()
	ends   <-chan struct{} // the request's context

	mu     sync.Mutex
	left   []byte
	err    error
	change chan struct{}
	once   sync.Once
}

func newBody() *body { return &body{change: make(chan struct{}, 1)} }

func (b *body) write(p []byte) {
	b.mu.Lock()
	b.left = append(b.left, p...)
	b.mu.Unlock()
	b.signal()
}

func (b *body) end(err error) {
	b.mu.Lock()
	b.err = err
	b.mu.Unlock()
	b.signal()
}

func (b *body) signal() {
	select {
	case b.change <- struct{}{}:
	default:
	}
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	for {
		b.mu.Lock()
		if len(b.left) > 0 {
			copied := copy(p, b.left)
			b.left = b.left[copied:]
			b.mu.Unlock()
			return copied, nil
		}
		err := b.err
		b.mu.Unlock()
		if err != nil {
			return 0, err
		}
		select {
		case <-b.change:
		case <-b.ends:
			return 0, io.ErrUnexpectedEOF
		}
	}
}

// Close implements io.Closer.
func (b *body) Close() error {
	b.once.Do(func() {
		b.end(io.ErrClosedPipe)
		b.closed()
	})
	return nil
}
