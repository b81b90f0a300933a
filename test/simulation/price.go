// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"slices"
	"strings"
	"time"

	"sa-controller-manager/test/simulation/model"
)

// What requests may cost. Each namespace has a budget for each process, which changes that others than replicas make add
// to, and every request of that process for an object there, whatever its answer, takes from.
const (
	perNamespace = 40 // at the beginning
	perChange    = 12 // of any object in it
	perTerm      = 4  // for each object that there is
	perFailure   = 2  // that the network or a policy has made

	// hot is how many requests of one kind a key of a queue may have in hotSpan: as many as a back-off that doubles from
	// 20 ms allows, and a few for its changes.
	hot     = 16
	hotSpan = 10 * time.Second
)

// price has what was paid.
type price struct {
	budgets              map[string]int         // by process and namespace
	earned               map[string]int         // by namespace
	recent               map[string][]time.Time // by process, verb and object
	changes              map[string][]time.Time // by object
	reported, lostEvents map[string]bool
	failed               map[string]bool // writes of objects
	// terminating are the writes in namespaces that are being deleted.
	terminating map[string]int
	last        time.Time // when something was asked for besides what is asked for again and again
}

func newPrice() price {
	return price{
		budgets: map[string]int{}, earned: map[string]int{}, recent: map[string][]time.Time{}, changes: map[string][]time.Time{},
		reported: map[string]bool{}, lostEvents: map[string]bool{}, failed: map[string]bool{}, terminating: map[string]int{},
	}
}

// changed is called with each change that no replica has made.
func (p *price) changed(before, after model.Object) {
	object := after
	if object == nil {
		object = before
	}
	name := object.GetNamespace()
	if name == "" {
		name = object.GetName()
	}
	p.earned[name] += perChange
}

// answered sees each request.
func (w *world) answered(c *call, made model.Answer) {
	r, p := c.request, &w.price
	if !isReplica(r.Client) || w.plan.upstream {
		return
	}
	w.looked(c)
	w.knows(c, made)
	if r.Resource == "serviceaccounts" && r.Unanswered {
		if account := w.server.Get(r.Resource, r.Namespace, r.Name); account != nil {
			delete(w.writes.times, r.Client+" "+string(account.GetUID())) // it does not know that its Secret was referenced
		}
	}
	if r.Resource == "events" && made.Code/100 != 2 {
		p.lostEvents[r.Client] = true
	}
	if !slices.Contains([]string{"secrets", "serviceaccounts", "configmaps", "namespaces", "clustertrustbundles", "pods"}, r.Resource) ||
		r.Verb == "watch" || r.Verb == "list" && r.Namespace == "" {
		return
	}
	namespace := r.Namespace
	if namespace == "" {
		namespace = r.Name
	}
	p.last = time.Now()
	if c.writes() && made.Code == 403 && strings.Contains(string(made.Body), "is being terminated") {
		if p.terminating[c.name]++; p.terminating[c.name] > 5 {
			w.violated(10, "%s comes again and again, and the namespace is being deleted", c.name)
		}
	}
	p.failed[r.Resource+" "+r.Namespace+"/"+r.Name] = p.failed[r.Resource+" "+r.Namespace+"/"+r.Name] || c.writes() && made.Code/100 != 2
	key := r.Client + " " + namespace
	p.budgets[key]++
	if made.Code/100 != 2 && made.Code != 404 {
		p.budgets[key] -= perFailure
	}
	most := perNamespace + p.earned[namespace] + w.writes.terms[r.Client]*perTerm*(10+w.objectsIn(namespace))
	if w.plan.hangs { // a watch may, and what it has not shown is asked for
		most += 100 * w.objectsIn(namespace)
	}
	if paid := p.budgets[key]; paid > most && !p.reported[key] {
		p.reported[key] = true
		w.violated(10, "%s has sent %d requests for namespace %s, where changes allow %d: %s", r.Client, paid, namespace, most, c.name)
	}
	w.judgeHot(c)
}

// judgeHot wants no object asked for again and again.
func (w *world) judgeHot(c *call) {
	recent := slices.DeleteFunc(w.price.recent[c.name], func(t time.Time) bool { return time.Since(t) > hotSpan })
	recent = append(recent, time.Now())
	w.price.recent[c.name] = recent
	most := 2 * hot // two queues may write the same object
	if c.request.Verb == "get" {
		most *= 2 // the account of several Secrets
	}
	if len(recent) > most && !w.price.reported[c.name] {
		w.price.reported[c.name] = true
		w.violated(10, "%s comes %d times within %v", c.name, len(recent), hotSpan)
	}
}

func (w *world) objectsIn(namespace string) (n int) {
	for _, resource := range []string{"secrets", "serviceaccounts"} {
		n += w.server.Count(resource, namespace)
	}
	return n
}

// judgeQuiet wants no request since a time but those that are meant to come again and again. Upstream's controllers may read.
func (w *world) judgeQuiet(since time.Time) {
	for _, p := range w.past {
		for _, r := range p.client.journal {
			reads := r.Verb == "get" || r.Verb == "list" || r.Verb == "watch"
			again := r.Resource == "" || r.Resource == "leases" || r.Resource == "events" || r.Verb == "watch" || r.Resource == "tokenreviews" ||
				strings.HasPrefix(r.Resource, "selfsubject") || reads && (r.Name == stateOfRootCA || w.plan.upstream)
			if r.Began.After(since) && !again {
				w.violated(10, "%s asks although nothing has changed: %s %s %s/%s", p.client.name, r.Verb, r.Resource, r.Namespace, r.Name)
				return
			}
		}
	}
}

const stateOfRootCA = "sa-controller-manager-root-ca"
