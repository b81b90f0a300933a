// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"fmt"
	"time"

	"sa-controller-manager/test/integration/faultproxy"
)

// transit is what a request may take from the process to its proxy.
const transit = time.Second

// judgeWrites goes through the journal of one process's proxy, in the order in which
// requests came, and returns what it wrote as a leader that was none any more. writes is
// how many there were. It counts from the beginning of each renewal that was answered
// well, as the process itself has to.
func judgeWrites(journal []faultproxy.Request, deadline time.Duration) (writes int, found []Violation) {
	var renewed time.Time
	for _, r := range journal {
		if r.Resource == "leases" && r.Name == leaseName || r.Resource == "leases" && r.Verb == "create" {
			if (r.Verb == "update" || r.Verb == "create") && r.Code/100 == 2 {
				renewed = r.Began
			}
			continue
		}
		if !leaderWrites(r) {
			continue
		}
		writes++
		if late := r.Began.Sub(renewed.Add(deadline + transit)); late > 0 && r.Served/100 == 2 {
			found = append(found, violated(9, "%s began %s after the renew deadline, and kube-apiserver took it", describe(r), lateness(renewed, late)))
		}
	}
	return writes, found
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

// leaderWrites selects what only a leader may write. Any replica may create the account
// that a Pod waits for.
func leaderWrites(r faultproxy.Request) bool {
	switch r.Resource {
	case "secrets", "configmaps":
		// Those of kube-system are how replicas agree on certificates and keys.
		return changes(r) && r.Namespace != "kube-system"
	case "serviceaccounts":
		return changes(r) && r.Verb != "create" && r.Subresource == ""
	}
	return false
}
