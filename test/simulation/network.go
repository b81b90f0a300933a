// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"bytes"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sa-controller-manager/test/integration/faultproxy"

	"sa-controller-manager/test/simulation/model"
)

// network lies between the clients and the API server. It does one thing at a time, when nothing else in the
// bubble can go on: it has a request answered, or tells a watch of an event. When, and what becomes of it, is
// drawn from the seed, the name of the thing and the time, so that a run without one of its operations is otherwise the
// same, and so is one in which goroutines run in another order.
type network struct {
	server *model.Server
	seed   uint64
	began  time.Time

	wake chan struct{}
	mu   sync.Mutex
	// arrived are calls that are not in the agenda yet.
	arrived []*call
	planned []*thing      // likewise
	closed  []*stream     // by their clients
	calm    bool          // nothing fails any more
	reviews time.Duration // which a TokenReview takes longer
	faults  []*fault

	// The goroutine of run alone uses what follows.
	agenda agenda
	holder int // the replica that has written the Lease last
	// answered sees each request and its answer, told each event that comes to a watch.
	answered func(c *call, made model.Answer)
	told     func(client, resource string, event model.Event)
	terms    []func() // what happens when the next one does

	revisions []revised
	restarted time.Time // when kube-apiserver was
	history   []step
	streams   map[*model.Watch]*stream
}

// thing is what happens next. The name is the same in each run of a seed, and "" if it is not worth a line.
type thing struct {
	name  string
	due   time.Time
	do    func(fate fate) string
	fate  fate
	reads bool // it changes nothing
}

// step is a thing that has happened.
type step struct {
	At     time.Duration
	Name   string
	Fate   fate
	Result string
	Reads  bool
}

func (s step) String() string {
	line := fmt.Sprintf("%9.3fs  %s", s.At.Seconds(), s.Name)
	if s.Result != "" {
		line += " -> " + s.Result
	}
	if s.Fate != "" {
		line += " (" + string(s.Fate) + ")"
	}
	return line
}

// nothing is the result of what came too late to have an effect.
const nothing = "nothing"

// fate is what becomes of a request.
type fate string

const (
	served    fate = ""
	lost      fate = "the answer is lost"
	refused   fate = "the connection is refused"
	failed    fate = "the API server fails"
	throttle  fate = "the API server is busy"
	shed      fate = "the API server has too many requests"
	clashed   fate = "a conflict is made up"
	forbidden fate = "a policy refuses it"
	unknown   fate = "the credentials are refused"
	held      fate = "the process is paused" // between its decision and the request
)

func newNetwork(server *model.Server, seed uint64) *network {
	n := &network{server: server, seed: seed, began: time.Now(), wake: make(chan struct{}, 1), streams: map[*model.Watch]*stream{}}
	server.Push = n.push
	seedRandom(seed, n.began)
	return n
}

// draw returns random numbers of a name at this time.
func (n *network) draw(name string) *rand.Rand {
	return draw(n.seed, fmt.Sprint(name, time.Since(n.began)))
}

// run does one thing after another until ctx ends.
func (n *network) run(ctx context.Context) {
	for ctx.Err() == nil {
		synctest.Wait()
		n.mu.Lock()
		arrived, planned, closed := n.arrived, n.planned, n.closed
		n.arrived, n.planned, n.closed = nil, nil, nil
		n.mu.Unlock()
		for _, s := range closed {
			n.cut(s, io.ErrClosedPipe)
		}
		for _, one := range planned {
			heap.Push(&n.agenda, one)
		}
		n.plan(arrived)
		var until <-chan time.Time
		if len(n.agenda) > 0 {
			next := n.agenda[0]
			left := time.Until(next.due)
			if left <= 0 {
				heap.Pop(&n.agenda)
				result := next.do(next.fate)
				if next.name != "" && result != nothing {
					n.history = append(n.history, step{time.Since(n.began), next.name, next.fate, result, next.reads})
				}
				continue
			}
			until = time.After(left)
		}
		select {
		case <-until:
		case <-n.wake:
		case <-ctx.Done():
		}
	}
}

func (n *network) wakeUp() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// call is a request that waits for its answer.
type call struct {
	client  *client
	request *model.Request
	journal *faultproxy.Request
	name    string
	began   time.Time
	answer  chan answer
	body    *body // of a watch
}

type answer struct {
	model.Answer
	body *body
	err  error
}

// plan puts calls into the agenda. Those of one name that come at once, as when two workers look the same
// account up, are answered at once, in the order of what they ask for: which has come first, the runtime of Go decides.
func (n *network) plan(calls []*call) {
	byName := map[string][]*call{}
	for _, c := range calls {
		byName[c.name] = append(byName[c.name], c)
	}
	for name, calls := range byName {
		slices.SortStableFunc(calls, func(a, b *call) int { return bytes.Compare(a.request.Body, b.request.Body) })
		n.mu.Lock()
		calm, reviews := n.calm, n.reviews
		n.mu.Unlock()
		first := calls[0]
		random := n.draw(name)
		delay := time.Millisecond + time.Duration(random.Int64N(int64(12*time.Millisecond)))
		doom := served
		if !calm {
			// What users ask for is slow at most: they would only ask again.
			switch slow := random.IntN(1000); {
			case slow < 4 && !first.client.user:
				delay += time.Duration(random.Int64N(int64(8 * time.Second)))
			case slow < 40:
				delay += time.Duration(random.Int64N(int64(700 * time.Millisecond)))
			}
			if first.request.Verb == "list" {
				delay += time.Duration(random.Int64N(int64(400 * time.Millisecond))) // of a large cluster
			}
			if dice := random.IntN(1000); !first.client.user {
				doom = first.doom(dice)
			}
		}
		if first.request.Resource == "tokenreviews" {
			delay += reviews
		}
		if first.request.Resource == "events" {
			name = "" // nothing depends on them
		}
		one := &thing{name: name, due: first.began.Add(delay), fate: doom, do: func(doom fate) (result string) {
			for _, c := range calls {
				result = n.answer(c, doom)
			}
			return result
		}}
		one.reads = first.request.Verb == "get" || first.request.Verb == "list"
		heap.Push(&n.agenda, one)
	}
}

func (c *call) writes() bool {
	return c.request.Verb != "get" && c.request.Verb != "list" && c.request.Verb != "watch"
}

func (c *call) doom(dice int) fate {
	switch {
	case dice < 15:
		return refused
	case dice < 22:
		return failed
	case dice < 25:
		return throttle
	case dice < 30 && c.request.Resource != "leases":
		return shed
	case dice < 50 && c.writes():
		return lost
	case dice < 60 && c.writes() && c.request.Verb != "create" && c.request.Resource != "leases":
		return clashed
	}
	return served
}

// answer has the server answer a call, unless it fails before. It returns what the history says.
func (n *network) answer(c *call, doom fate) string {
	n.mu.Lock()
	for _, f := range n.faults {
		if f.hits(c) {
			doom = f.fate
		}
		if doom == held {
			n.mu.Unlock()
			heap.Push(&n.agenda, &thing{name: c.name, due: f.until, do: func(doom fate) string { return n.answer(c, doom) }})
			return nothing
		}
	}
	if c.began.Before(n.restarted) {
		doom = refused
	}
	dead := c.client.dead
	n.mu.Unlock()
	var made model.Answer
	switch doom {
	case refused:
		n.answered(c, made)
		c.answer <- answer{err: syscall.ECONNREFUSED}
		return "0"
	default:
		made = n.serve(c, doom)
	}
	if made.Watch != nil {
		if dead {
			return "dead"
		}
		c.body = n.stream(c, made.Watch)
	}
	c.request.Unanswered = c.request.Unanswered || doom == lost
	n.answered(c, made)
	result := fmt.Sprint(made.Code)
	if doom == lost {
		c.answer <- answer{err: io.ErrUnexpectedEOF}
		return result
	}
	c.journal.Code = made.Code
	c.answer <- answer{Answer: made, body: c.body}
	return result
}

// serve is what the server answers, or what keeps it from that.
func (n *network) serve(c *call, doom fate) model.Answer {
	about := schema.GroupResource{Resource: c.request.Resource}
	switch doom { //nolint:exhaustive // for the others the server answers
	case failed:
		return model.Failure(apierrors.NewInternalError(errors.New("etcdserver: request timed out")), c.request.Accept)
	case throttle:
		return model.Failure(apierrors.NewServiceUnavailable("the API server is shutting down"), c.request.Accept)
	case shed:
		return model.Failure(apierrors.NewTooManyRequests("too many requests", 1), c.request.Accept)
	case unknown:
		return model.Failure(apierrors.NewUnauthorized("Unauthorized"), c.request.Accept)
	case forbidden:
		return model.Failure(apierrors.NewForbidden(about, c.request.Name, errors.New("a policy refuses it")), c.request.Accept)
	case clashed:
		return model.Failure(apierrors.NewConflict(about, c.request.Name, errors.New("the object has been modified")), c.request.Accept)
	}
	made := n.server.Serve(c.request)
	c.journal.Served = made.Code
	if c.request.Resource == "leases" && c.client.replica >= 0 && c.writes() && made.Code/100 == 2 {
		if n.holder != c.client.replica {
			for _, begins := range n.terms {
				begins()
			}
			n.terms = nil
		}
		n.holder = c.client.replica
	}
	return made
}

// agenda is a heap of things by their time.
type agenda []*thing //nolint:recvcheck // heap.Interface asks for it

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	if !a[i].due.Equal(a[j].due) {
		return a[i].due.Before(a[j].due)
	}
	return a[i].name < a[j].name
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(*thing)) }
func (a *agenda) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}
