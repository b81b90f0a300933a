// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package checker

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/test/faults/workload"
	"sa-controller-manager/test/integration/faultproxy"
)

// transit is what a request may take from the process to its proxy, less what the renewal
// before it took. Of 6500 writes of race-enabled leaders, in three runs on two busy cores,
// none that kube-apiserver took came less than 150 ms before the deadline; without the
// fence one comes each 200 ms after it.
const transit = 300 * time.Millisecond

// onItsWay is how soon after a pause a request comes that had asked the fence before it: what
// is left to do is to write it to a connection, after all timers that have run out.
const onItsWay = 500 * time.Millisecond

// JudgeWrites goes through the journal of one process's proxy, in the order in which
// requests came, and returns what it wrote as a leader that was none any more. writes is
// how many there were. It counts from the beginning of each renewal that was answered
// well, as the process itself has to. resumed is when the process went on after a pause: no
// process can tell that it will be stopped. What it creates then is what the next leader would
// create, or collapses; everything else has a precondition, and is not excused if that held.
func JudgeWrites(journal []faultproxy.Request, deadline time.Duration, asked func(namespace string) bool,
	resumed []time.Time) (writes int, found []Violation) {
	var renewed time.Time
	for _, r := range journal {
		if r.Resource == "leases" && r.Name == workload.LeaseName || r.Resource == "leases" && r.Verb == "create" {
			if (r.Verb == "update" || r.Verb == "create") && r.Code/100 == 2 {
				renewed = r.Began
			}
			continue
		}
		if !leaderWrites(r, asked) {
			continue
		}
		writes++
		if late := r.Began.Sub(renewed.Add(deadline + transit)); late > 0 && r.Served/100 == 2 &&
			!(r.Verb == "create" && justAfter(r.Began, resumed)) {
			found = append(found,
				Violated(9, "%s began %s after the renew deadline, and kube-apiserver took it", describe(r), lateness(renewed, late)))
		}
	}
	return writes, found
}

func justAfter(at time.Time, pauses []time.Time) bool {
	return slices.ContainsFunc(pauses, func(end time.Time) bool {
		since := at.Sub(end)
		return since >= 0 && since < onItsWay
	})
}

func lateness(renewed time.Time, late time.Duration) string {
	if renewed.IsZero() {
		return "without a lease, so any time"
	}
	return (late + transit).Round(time.Millisecond).String()
}

func describe(r faultproxy.Request) string {
	return fmt.Sprintf("%s %s %s/%s", r.Verb, r.Resource, r.Namespace, r.Name)
}

// leaderWrites selects what only a leader may write. asked tells in which namespaces
// a client may have created a Pod.
//
// Left out is what any replica may write: its Lease, Events, reviews, the serving CA's
// Secret and its line of the published key ring. A Secret that is created in kube-system may
// be the serving CA's, because the path of a creation has no name. Pods are only created
// with dryRun. A lease that was given away counts as renewed: no body is in the journal.
func leaderWrites(r faultproxy.Request, asked func(namespace string) bool) bool {
	if r.Verb == "get" || r.Verb == "list" || r.Verb == "watch" || r.Subresource != "" {
		return false
	}
	switch r.Resource {
	case "mutatingwebhookconfigurations", "validatingwebhookconfigurations", "configmaps":
		return true
	case "secrets":
		// Every replica publishes its key ring in one.
		return r.Namespace != metav1.NamespaceSystem || r.Verb != "create" && r.Name != workload.CASecretName && r.Name != workload.KeyRingSecret
	case "serviceaccounts":
		// Any replica may create the account that a Pod waits for, and nothing in such a
		// request is different. Where nobody asks for a Pod, nobody waits.
		return r.Verb != "create" || !asked(r.Namespace)
	}
	return false
}

// PodNamespaces returns where a client may have created a Pod: where the calls did, and in
// kube-system, where a leader does to see whether the webhook is called.
func PodNamespaces(calls []workload.Call) func(namespace string) bool {
	namespaces := map[string]bool{metav1.NamespaceSystem: true}
	for _, call := range calls {
		namespaces[call.Namespace] = true
	}
	return func(namespace string) bool { return namespaces[namespace] }
}
