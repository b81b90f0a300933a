// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"bytes"
	"crypto"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net/http"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"
	"sa-controller-manager/signing/testkeys"
	"sa-controller-manager/test/faults/checker"
	"sa-controller-manager/test/integration/faultproxy"

	"sa-controller-manager/test/simulation/model"
)

// client is the transport of one process, or of a user.
type client struct {
	network *network
	name    string
	replica int
	user    bool
	ahead   bool // its clock is an hour
	journal []*faultproxy.Request

	dead bool // the lock of the network guards it
}

var requestInfo = request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// nameIn is the name of the object in a body.
func nameIn(sent []byte) string {
	decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(sent, nil, nil)
	if object, ok := decoded.(model.Object); err == nil && ok {
		return object.GetName()
	}
	return ""
}

// anHourAhead is a Lease as a process writes it whose clock is.
func anHourAhead(sent []byte) []byte {
	decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(sent, nil, nil)
	lease, ok := decoded.(*coordinationv1.Lease)
	if err != nil || !ok || lease.Spec.RenewTime == nil {
		return sent
	}
	lease.Spec.RenewTime = &metav1.MicroTime{Time: lease.Spec.RenewTime.Add(time.Hour)}
	return model.Encoded(lease)
}

// RoundTrip implements http.RoundTripper.
func (c *client) RoundTrip(r *http.Request) (*http.Response, error) {
	var sent []byte
	if r.Body != nil {
		var err error
		if sent, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		r.Body.Close()
	}
	info, err := requestInfo.NewRequestInfo(r)
	if err != nil {
		return nil, err
	}
	if info.Resource == "namespaces" {
		info.Namespace = ""
	}
	query := r.URL.Query()
	manager, _, _ := strings.Cut(r.UserAgent(), "/")
	if by := query.Get("fieldManager"); by != "" {
		manager = by
	}
	asked := &call{client: c, began: time.Now(), answer: make(chan answer, 1), request: &model.Request{
		Verb: info.Verb, Resource: info.Resource, Namespace: info.Namespace, Name: info.Name, Subresource: info.Subresource,
		Path: r.URL.Path, Query: query, ContentType: r.Header.Get("Content-Type"), Accept: r.Header.Get("Accept"), Manager: manager,
		Body: sent, Client: c.name, Began: time.Now()}}
	if c.ahead && info.Resource == "leases" && sent != nil {
		sent = anHourAhead(sent)
	}
	name := info.Name
	if info.Verb == "create" && name == "" {
		name = nameIn(sent)
	}
	asked.name = strings.Join([]string{c.name, info.Verb, path.Join(info.Resource, info.Namespace, name, info.Subresource)}, " ")
	switch {
	case info.Resource == "":
		asked.name += r.URL.Path
	case strings.HasPrefix(info.Resource, "selfsubject"): // many at once, which their bodies tell apart
		hash := fnv.New32a()
		hash.Write(sent)
		asked.name += fmt.Sprintf("/%08x", hash.Sum32())
	}
	asked.journal = &faultproxy.Request{
		Verb: info.Verb, Resource: info.Resource, Namespace: info.Namespace, Name: info.Name, Subresource: info.Subresource,
		Began: asked.began}
	return c.answered(r, asked)
}

// answered sends a call and awaits its answer.
func (c *client) answered(r *http.Request, asked *call) (*http.Response, error) {
	n := c.network
	n.mu.Lock()
	if c.dead {
		n.mu.Unlock()
		return nil, syscall.ECONNREFUSED
	}
	c.journal = append(c.journal, asked.journal)
	n.arrived = append(n.arrived, asked)
	n.mu.Unlock()
	n.wakeUp()
	select {
	case <-r.Context().Done():
		asked.request.Unanswered = true
		return nil, r.Context().Err()
	case a := <-asked.answer:
		if a.err != nil {
			return nil, a.err
		}
		return responseOf(r, a), nil
	}
}

func responseOf(r *http.Request, a answer) *http.Response {
	response := &http.Response{
		Status: http.StatusText(a.Code), StatusCode: a.Code, Proto: "HTTP/2.0", ProtoMajor: 2, Request: r,
		Header: http.Header{"Content-Type": []string{a.ContentType}}, Body: io.NopCloser(bytes.NewReader(a.Body))}
	if a.RetryAfter != "" {
		response.Header.Set("Retry-After", a.RetryAfter)
	}
	if a.body != nil {
		a.body.ends = r.Context().Done()
		response.Body = a.body
	}
	return response
}

// fault is what goes wrong for a while between a process and the API server.
type fault struct {
	// client is the beginning of a client's name, resource what is asked about; "" is any.
	client, resource string
	until            time.Time
	// fate is that of each request; served if only watches are silent, or late.
	fate fate
	lag  time.Duration // of the watch cache
	// only are the verbs that it hits, those of writes if there are none.
	only []string
}

func (f *fault) meets(c *client, resource string) bool {
	return !c.user && time.Now().Before(f.until) && strings.HasPrefix(c.name, f.client) && (f.resource == "" || f.resource == resource)
}

func (f *fault) hits(c *call) bool {
	if f.fate == served || !f.meets(c.client, c.request.Resource) {
		return false
	}
	return f.fate != forbidden || len(f.only) == 0 && c.writes() || slices.Contains(f.only, c.request.Verb)
}

// stalls returns until when a watch is silent.
func (f *fault) stalls(s *stream) time.Time {
	if f.fate != forbidden && f.lag == 0 && f.meets(s.client, s.watch.Resource()) {
		return f.until
	}
	return time.Time{}
}

// behind returns how late the watch cache is that a client reads.
func (n *network) behind(client string) (lag time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, f := range n.faults {
		if strings.HasPrefix(client, f.client) && isReplica(client) && time.Now().Before(f.until) {
			lag = max(lag, f.lag)
		}
	}
	return lag
}

// cached is the revision that this cache has.
func (n *network) cached(client string) int64 {
	then, newest := time.Now().Add(-n.behind(client)), n.server.Revision()
	for len(n.revisions) > 0 && n.revisions[0].at.Before(time.Now().Add(-time.Minute)) {
		n.revisions = n.revisions[1:]
	}
	for _, r := range slices.Backward(n.revisions) {
		if !r.at.After(then) {
			return newest
		}
		newest = r.before
	}
	return newest
}

// revised is when a revision came, and the one before it.
type revised struct {
	at     time.Time
	before int64
}

// review has each TokenReview take longer.
func (n *network) review(takes time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reviews = takes
}

func (n *network) strike(f *fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults = append(n.faults, f)
}

// strike has a fault begin, which lasts for a while.
type strike func(w *world, random *rand.Rand, lasts time.Duration)

func strikeOf(name string) strike {
	all := slices.Concat(faults, others)
	return all[slices.IndexFunc(all, func(f namedFault) bool { return f.name == name })].strike
}

type namedFault struct {
	name   string
	strike strike
}

var watchedResources = []string{"secrets", "serviceaccounts", "namespaces", "configmaps", ""}

var faults = []namedFault{
	{"crash", func(w *world, random *rand.Rand, lasts time.Duration) {
		i := random.IntN(w.plan.replicas)
		w.crash(i)
		w.network.later(time.Since(w.network.began)+lasts, "restart", func() { w.start(i) })
	}},
	{"crash of the leader", func(w *world, _ *rand.Rand, lasts time.Duration) {
		i := w.leader()
		w.crash(i)
		w.network.later(time.Since(w.network.began)+lasts, "restart", func() { w.start(i) })
	}},
	{"deletion as a term begins", func(w *world, random *rand.Rand, lasts time.Duration) {
		i := w.leader()
		w.network.terms = append(w.network.terms, func() {
			after := time.Duration(random.Int64N(int64(100 * time.Millisecond)))
			w.network.later(time.Since(w.network.began)+after, "a user deletes a Secret", func() { w.deleteBase(random) })
		})
		w.halt(i)
		w.network.later(time.Since(w.network.began)+10*time.Second+lasts, "restart", func() { w.start(i) })
	}},
	{"stop of the leader", func(w *world, random *rand.Rand, lasts time.Duration) {
		i := w.leader()
		for range 3 { // so that it has something to do
			w.deleteBase(random)
		}
		after := time.Duration(random.Int64N(int64(20 * time.Millisecond)))
		w.network.later(time.Since(w.network.began)+after, "stop", func() { w.halt(i) })
		w.network.later(time.Since(w.network.began)+10*time.Second+lasts, "restart", func() { w.start(i) })
	}},
	{"partition", func(w *world, random *rand.Rand, lasts time.Duration) {
		w.network.strike(&fault{client: w.network.replica(random), until: time.Now().Add(lasts), fate: refused})
	}},
	{"held Lease", func(w *world, _ *rand.Rand, lasts time.Duration) {
		w.network.strike(&fault{resource: "leases", until: time.Now().Add(lasts), fate: refused})
	}},
	{"refused writes", func(w *world, random *rand.Rand, lasts time.Duration) {
		w.network.strike(&fault{resource: watchedResources[random.IntN(4)], until: time.Now().Add(lasts), fate: forbidden})
	}},
	{"silent watch", func(w *world, random *rand.Rand, lasts time.Duration) {
		w.network.strike(&fault{client: w.network.replica(random), resource: watchedResources[random.IntN(5)],
			until: time.Now().Add(lasts)})
	}},
	{"missed history", func(w *world, random *rand.Rand, lasts time.Duration) {
		f := &fault{client: w.network.replica(random), resource: watchedResources[random.IntN(5)], until: time.Now().Add(lasts)}
		w.network.strike(f)
		if f.resource == "" || f.resource == "secrets" {
			w.network.later(time.Since(w.network.began)+lasts/2, "a user deletes a Secret", func() { w.deleteBase(random) })
		}
		if f.resource == "" || f.resource == "serviceaccounts" {
			w.network.later(time.Since(w.network.began)+lasts/2, "another account of a name comes", func() { w.replaceBase(random) })
		}
		w.network.later(time.Since(w.network.began)+lasts-time.Millisecond, "compaction", func() {
			w.server.Compact()
			w.network.cutAll(f.client, f.resource)
		})
	}},
	{"late watch cache", func(w *world, random *rand.Rand, lasts time.Duration) {
		lag := time.Second + time.Duration(random.Int64N(int64(30*time.Second)))
		w.network.strike(&fault{client: w.network.replica(random), until: time.Now().Add(lasts), lag: lag})
	}},
	{"refused lists and watches", func(w *world, random *rand.Rand, lasts time.Duration) {
		f := &fault{client: w.network.replica(random), resource: watchedResources[random.IntN(4)], until: time.Now().Add(lasts),
			fate: forbidden, only: []string{"list", "watch"}}
		w.network.strike(f)
		w.network.cutAll(f.client, f.resource)
	}},
	{"refused reads", func(w *world, random *rand.Rand, lasts time.Duration) {
		w.network.strike(&fault{resource: watchedResources[random.IntN(2)], until: time.Now().Add(lasts), fate: forbidden,
			only: []string{"get"}})
	}},
	{"expired credentials", func(w *world, random *rand.Rand, lasts time.Duration) {
		w.network.strike(&fault{client: w.network.replica(random), until: time.Now().Add(lasts), fate: unknown})
	}},
	{"pause", func(w *world, random *rand.Rand, lasts time.Duration) {
		w.network.strike(&fault{client: w.network.replica(random), until: time.Now().Add(lasts), fate: held})
	}},
	{"restart of the API server", func(w *world, _ *rand.Rand, lasts time.Duration) {
		w.network.strike(&fault{until: time.Now().Add(lasts / 3), fate: refused})
		w.network.cutAll("", "")
	}},
	{"other keys", func(w *world, _ *rand.Rand, lasts time.Duration) {
		w.server.Verify = strangeKeys.Verify
		w.network.cutAll("", "")
		w.network.later(time.Since(w.network.began)+lasts, "own keys", w.useOwnKeys)
	}},
	{"strange keys", func(w *world, random *rand.Rand, lasts time.Duration) {
		w.server.Verify, w.unproven = strangeKeys.Verify, true
		w.network.review(time.Duration(random.Int64N(int64(2 * time.Second)))) // an authentication webhook is asked, too
		w.network.later(time.Since(w.network.began)+lasts, "own keys", w.useOwnKeys)
	}},
}

// useOwnKeys is a kube-apiserver that is started with the key of the product.
func (w *world) useOwnKeys() {
	w.server.Verify, w.unproven = w.verify, false
	w.network.review(0)
	w.network.cutAll("", "")
}

var strangeKeys = func() *checker.KeyRing {
	other := testkeys.Parse(testkeys.P384())
	return &checker.KeyRing{Keys: map[string]crypto.PublicKey{other.ID(): other.Public().Key}, Active: other.ID()}
}()

func (n *network) replica(random *rand.Rand) string { return fmt.Sprintf("replica-%d", random.IntN(2)) }
