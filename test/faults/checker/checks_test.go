// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package checker

import (
	"errors"
	"testing"
	"time"

	"sa-controller-manager/test/faults/workload"
	"sa-controller-manager/test/integration/faultproxy"
)

func TestJudgeWrites(t *testing.T) {
	t.Parallel()
	begun := time.Unix(1000, 0)
	at := func(seconds float64, r faultproxy.Request) faultproxy.Request {
		r.Began = begun.Add(time.Duration(seconds * float64(time.Second)))
		return r
	}
	renewal := faultproxy.Request{Verb: "update", Resource: "leases", Name: workload.LeaseName, Code: 200, Served: 200}
	lost := faultproxy.Request{Verb: "update", Resource: "leases", Name: workload.LeaseName, Code: 0, Served: 200}
	write := faultproxy.Request{Verb: "patch", Resource: "secrets", Namespace: "shop", Name: "s", Served: 200}
	leaders := func(verb, resource, namespace, name string) faultproxy.Request {
		return faultproxy.Request{Verb: verb, Resource: resource, Namespace: namespace, Name: name, Served: 200}
	}
	const deadline = 3 * time.Second
	cases := map[string]struct {
		reason  string
		journal []faultproxy.Request
		want    int
	}{
		"InTime": {journal: []faultproxy.Request{at(0, renewal), at(2.9, write)}},
		"Late":   {journal: []faultproxy.Request{at(0, renewal), at(3.4, write)}, want: 1},
		"RenewalUnseen": {
			reason: "the process never had the answer", journal: []faultproxy.Request{at(0, renewal), at(2, lost), at(4.5, write)}, want: 1,
		},
		"PatchAtAPause": {reason: "its precondition held", journal: []faultproxy.Request{at(0, renewal), at(8.05, write)}, want: 1},
		"AfterAPause": {
			reason: "it asked afterwards", journal: []faultproxy.Request{at(0, renewal), at(8.6, leaders("create", "configmaps", "shop", ""))},
			want: 1,
		},
		"NeverLed": {journal: []faultproxy.Request{at(0, write)}, want: 1},

		"Account": {
			reason: "nobody waits for it", journal: []faultproxy.Request{at(0, leaders("create", "serviceaccounts", "shop", ""))}, want: 1,
		},
		"Reference": {journal: []faultproxy.Request{at(0, leaders("patch", "serviceaccounts", "pods", "default"))}, want: 1},
		"Mutating": {
			journal: []faultproxy.Request{at(0, leaders("update", "mutatingwebhookconfigurations", "", workload.ConfigurationName))}, want: 1,
		},
		"Validating": {journal: []faultproxy.Request{at(0, leaders("create", "validatingwebhookconfigurations", "", ""))}, want: 1},
		"RootCA": {
			journal: []faultproxy.Request{at(0, leaders("update", "configmaps", "kube-system", workload.RootCAConfigMap))}, want: 1,
		},
		"StateOfRootCA": {
			journal: []faultproxy.Request{at(0, leaders("update", "secrets", "kube-system", "sa-controller-manager-root-ca"))}, want: 1,
		},
		"ConfigMap":        {journal: []faultproxy.Request{at(0, leaders("create", "configmaps", "kube-system", ""))}, want: 1},
		"TokenOfTheSystem": {journal: []faultproxy.Request{at(0, leaders("patch", "secrets", "kube-system", "default-token-abcde"))}, want: 1},
	}
	asked := PodNamespaces([]workload.Call{{Namespace: "pods"}})
	resumed := []time.Time{begun.Add(8 * time.Second)}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, found := JudgeWrites(tc.journal, deadline, asked, resumed); len(found) != tc.want {
				t.Errorf("%s: %v, want %d", tc.reason, found, tc.want)
			}
		})
	}
}

func TestJudgeCall(t *testing.T) {
	t.Parallel()
	begun := time.Unix(1000, 0)
	second := func(n int) time.Time { return begun.Add(time.Duration(n) * time.Second) }
	refused, bare := errors.New("refused"), "token"
	cases := map[string]struct {
		reason  string
		call    workload.Call
		excuses []*Interval
		want    bool // something is wrong
	}{
		"Admitted": {call: workload.Call{Begun: second(0), Ended: second(1)}},
		"Refused":  {call: workload.Call{Begun: second(0), Ended: second(1), Err: refused}, want: true},
		"Bare":     {call: workload.Call{Begun: second(0), Ended: second(1), Lacks: bare}, want: true},
		"Excused": {
			call:    workload.Call{Begun: second(5), Ended: second(6), Err: refused},
			excuses: []*Interval{{From: second(4), To: second(9), Excuse: Refused}},
		},
		"LongAfter": {
			call:    workload.Call{Begun: second(14), Ended: second(15), Err: refused},
			excuses: []*Interval{{From: second(4), To: second(9), Excuse: Refused}}, want: true,
		},
		"BareWhileRefused": {
			reason:  "nobody has taken the webhook out",
			call:    workload.Call{Begun: second(5), Ended: second(6), Lacks: bare},
			excuses: []*Interval{{From: second(4), To: second(9), Excuse: Refused}}, want: true,
		},
		"NotFresh": {
			call:    workload.Call{Begun: second(5), Ended: second(6), Err: refused},
			excuses: []*Interval{{From: second(4), To: second(9), Excuse: FreshRefused}}, want: true,
		},
		"UnwantedAndAdmitted": {call: workload.Call{Begun: second(0), Ended: second(1), Unwanted: true}, want: true},
		"UnwantedWhileRefused": {
			reason: "nothing else may let it in", call: workload.Call{Begun: second(5), Ended: second(6), Unwanted: true},
			excuses: []*Interval{{From: second(4), To: second(9), Excuse: Refused}}, want: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := JudgeCall(tc.call, tc.excuses); (got != "") != tc.want {
				t.Errorf("%s: %q", tc.reason, got)
			}
		})
	}
}
