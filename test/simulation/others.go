// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sa-controller-manager/test/faults/workload"

	"sa-controller-manager/test/simulation/model"
)

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
		w.network.at(time.Now().Add(after), "another client undoes "+made.GetName(), func() { w.remove(resource, namespace, made.GetName()) })
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
