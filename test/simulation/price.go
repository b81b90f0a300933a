// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sa-controller-manager/test/faults/workload"

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
	// again is how many references of accounts are visited, by process, because a request failed: twice by each sync.
	again map[string]int
	// terminating are the writes in namespaces that are being deleted.
	terminating map[string]int
	last        time.Time // when something was asked for besides what is asked for again and again
}

func newPrice() price {
	return price{
		budgets: map[string]int{}, earned: map[string]int{}, recent: map[string][]time.Time{}, changes: map[string][]time.Time{},
		reported: map[string]bool{}, lostEvents: map[string]bool{}, failed: map[string]bool{}, again: map[string]int{},
		terminating: map[string]int{}}
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
	if r.Resource == "leases" && c.writes() && made.Code/100 == 2 && !r.Unanswered {
		w.writes.renewed = r.Began
	}
	w.looked(c)
	w.knows(c, made)
	if account, ok := w.server.Get("serviceaccounts", r.Namespace, r.Name).(*corev1.ServiceAccount); ok && r.Resource == "serviceaccounts" {
		if r.Unanswered {
			delete(w.writes.times, r.Client+" "+string(account.UID)) // it does not know that its Secret was referenced
		}
		if r.Unanswered || made.Code/100 != 2 {
			p.again[r.Client] += 2 * len(account.Secrets)
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
			again := r.Resource == "" || r.Resource == "leases" || r.Resource == "events" || r.Verb == "watch" ||
				r.Resource == "tokenreviews" ||
				strings.HasPrefix(r.Resource, "selfsubject") || reads && (r.Name == stateOfRootCA || w.plan.upstream)
			if r.Began.After(since) && !again {
				w.violated(10, "%s asks although nothing has changed: %s %s %s/%s", p.client.name, r.Verb, r.Resource, r.Namespace, r.Name)
				return
			}
		}
	}
}

const stateOfRootCA = "sa-controller-manager-root-ca"

// policy is an admission policy, webhook or quota that meets what replicas write for a while.
type policy struct {
	resource, namespace, verb string // "" is any
	until                     time.Time
	do                        func(before, after model.Object) (model.Object, error)
}

// admit is kube-apiserver's admission.
func (w *world) admit(by *model.Request, resource string, before, after model.Object) (model.Object, error) {
	if by.Resource != resource || !isReplica(by.Client) || by.Name == stateOfRootCA {
		return after, nil
	}
	for _, p := range w.policies {
		if time.Now().Before(p.until) && p.resource == resource && (p.namespace == "" || p.namespace == by.Namespace) &&
			(p.verb == "" || p.verb == by.Verb) && after != nil {
			return p.do(before, after)
		}
	}
	return after, nil
}

func (w *world) enforce(p *policy) { w.policies = append(w.policies, p) }

// somewhere is a namespace of users.
func (w *world) somewhere(random *rand.Rand) string {
	all := slices.DeleteFunc(w.server.Objects("namespaces"), func(o model.Object) bool { return o.GetDeletionTimestamp() != nil })
	return all[random.IntN(len(all))].GetName()
}

// remove is another client that deletes an object.
func (w *world) remove(resource, namespace, name string) {
	w.server.Serve(&model.Request{Client: "another client", Verb: "delete", Resource: resource, Namespace: namespace, Name: name})
}

// undo is another client that deletes what replicas create, as often as they do.
func (w *world) undo(random *rand.Rand, resource string, lasts time.Duration) {
	until, namespace := time.Now().Add(lasts), w.somewhere(random)
	w.undoes = func(made model.Object) {
		secret, is := made.(*corev1.Secret)
		if time.Now().After(until) || made.GetNamespace() != namespace || is && resource != "secrets" || !is && resource != "configmaps" ||
			is && secret.Labels[workload.AutoCreatedLabel] == "" {
			return
		}
		after := time.Duration(random.Int64N(int64(50 * time.Millisecond)))
		w.network.at(time.Now().Add(after), "another client undoes "+made.GetName(),
			func() { w.remove(resource, namespace, made.GetName()) })
	}
	for _, object := range w.server.Objects(resource) {
		if secret, is := object.(*corev1.Secret); object.GetNamespace() == namespace && (object.GetName() == workload.RootCAConfigMap ||
			is && secret.Labels[workload.AutoCreatedLabel] != "") {
			w.remove(resource, namespace, object.GetName())
		}
	}
}

// forget has users not expect what others have deleted.
func (w *world) forget() {
	for _, n := range w.model {
		maps.DeleteFunc(n.Secrets, func(_ string, s *workload.TokenSecret) bool { return w.writes.others[s.UID] })
	}
}

// empty is the namespace controller: it removes the content of a namespace, one object after the other, in any order,
// and then the namespace.
func (w *world) empty(namespace string, slow time.Duration) {
	random := w.network.draw("empty " + namespace)
	w.network.at(time.Now().Add(time.Duration(random.Int64N(int64(slow)))), "the namespace controller empties "+namespace, func() {
		var left []func()
		for _, resource := range []string{"serviceaccounts", "secrets", "configmaps"} {
			for _, object := range w.server.Objects(resource) {
				if object.GetNamespace() == namespace {
					left = append(left, func() { w.remove(resource, namespace, object.GetName()) })
				}
			}
		}
		if len(left) == 0 {
			w.server.Finalize(namespace)
			return
		}
		left[random.IntN(len(left))]()
		w.empty(namespace, slow)
	})
}

// others are other clients and policies.
var others = []namedFault{
	{"quota", func(w *world, random *rand.Rand, lasts time.Duration) {
		w.enforce(&policy{resource: "secrets", namespace: w.somewhere(random), verb: "create", until: time.Now().Add(lasts),
			do: func(_, after model.Object) (model.Object, error) {
				return nil, apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, after.GetName(),
					errors.New("exceeded quota: secrets, requested: count/secrets=1, used: count/secrets=9, limited: count/secrets=9"))
			}})
	}},
	{"policy that refuses", func(w *world, random *rand.Rand, lasts time.Duration) {
		resource := watchedResources[random.IntN(2)]
		w.enforce(&policy{resource: resource, namespace: w.somewhere(random), until: time.Now().Add(lasts),
			do: func(_, after model.Object) (model.Object, error) {
				err := apierrors.NewForbidden(schema.GroupResource{Resource: resource}, after.GetName(),
					errors.New("ValidatingAdmissionPolicy 'ours' with binding 'ours' denied request: only we may"))
				err.ErrStatus.Code, err.ErrStatus.Reason = 422, "Invalid"
				return nil, err
			}})
	}},
	{"policy that strips", func(w *world, random *rand.Rand, lasts time.Duration) {
		w.enforce(&policy{resource: watchedResources[random.IntN(2)], verb: "patch", until: time.Now().Add(lasts),
			do: func(before, _ model.Object) (model.Object, error) { return before.DeepCopyObject().(model.Object), nil }})
	}},
	{"policy that rewrites", func(w *world, _ *rand.Rand, lasts time.Duration) {
		w.enforce(&policy{resource: "configmaps", until: time.Now().Add(lasts + 30*time.Second),
			do: func(_, after model.Object) (model.Object, error) {
				after.(*corev1.ConfigMap).Data["ca.crt"] = fmt.Sprintf("rewritten %d", time.Now().UnixNano())
				return after, nil
			}})
	}},
	{"deletion of an account default", func(w *world, random *rand.Rand, _ time.Duration) {
		w.remove("serviceaccounts", w.somewhere(random), workload.DefaultAccount)
	}},
	{"deletion of a root CA", func(w *world, random *rand.Rand, _ time.Duration) {
		w.remove("configmaps", w.somewhere(random), workload.RootCAConfigMap)
	}},
	{"deletion of the Lease", func(w *world, _ *rand.Rand, _ time.Duration) { w.remove("leases", "kube-system", workload.LeaseName) }},
	{"another client undoes Secrets", func(w *world, random *rand.Rand, lasts time.Duration) { w.undo(random, "secrets", lasts) }},
	{"another client undoes root CAs", func(w *world, random *rand.Rand, lasts time.Duration) { w.undo(random, "configmaps", lasts) }},
	{"second token controller", func(w *world, _ *rand.Rand, lasts time.Duration) { w.second(lasts) }},
	// The plan has these once at most.
	{"rotation", func(w *world, _ *rand.Rand, _ time.Duration) { w.rotate(false, 0) }},
	{"revocation", func(w *world, _ *rand.Rand, lasts time.Duration) { w.rotate(true, lasts) }},
	{"another root CA", func(w *world, _ *rand.Rand, _ time.Duration) { w.changeRootCA() }},
}
