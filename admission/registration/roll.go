// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// roundAge is how long answers are good for: a replica may go after it has answered.
	// While somebody is missing, all are asked anew that often.
	roundAge = 30 * time.Second

	// answerTime is how long answers may be on their way.
	answerTime = 2 * time.Second

	// missingGrace is how long a host may be without a replica before anybody is told.
	// The static pods of a node that joins do not start at the same time.
	missingGrace = time.Minute
)

// roll is what is known of the hosts whose kube-apiserver calls the replica beside it.
// Its zero value is for a registration that every kube-apiserver reaches the same way.
type roll struct {
	applies bool
	synced  bool     // what follows is known
	hosts   []string // of the kube-apiservers that live
	self    string   // where this process is
	call    rollCall // the last one
	// round is the one that this process has called, empty before, and called is when.
	round  string
	called time.Time
}

// matters tells whether there is anybody to ask for. A single kube-apiserver is the one
// that has proved that it reaches us, whatever its name.
func (r roll) matters() bool { return r.applies && r.synced && len(r.hosts) > 1 }

// missing are the hosts from which no answer has come. That we are on our own host was
// proved by the probe.
func (r roll) missing() []string {
	if !r.matters() {
		return nil
	}
	var missing []string
	for _, host := range r.hosts {
		if host != r.self && !r.call.answered(host, r.round) {
			missing = append(missing, host)
		}
	}
	return missing
}

// lost tells whether what was called last is not the question of this process: it has not
// asked yet, or somebody has deleted or replaced its question.
func (r roll) lost() bool { return r.round == "" || r.call.round != r.round }

func (r roll) stale(now time.Time) bool {
	return r.round == "" || now.Sub(r.called) > roundAge
}

// hold decides whether a webhook that nobody calls yet has to wait, and for what: nobody
// may be told to call it who does not reach one.
func (r roll) hold(now time.Time) (d decision, held bool) {
	wait := func(detail string) (decision, bool) {
		return decision{status: Status{Waiting, detail}, after: lookAgain}, true
	}
	switch missing := r.missing(); {
	case !r.applies:
		return decision{}, false
	case !r.synced:
		return wait("the identity Leases of kube-apiserver are not listed yet")
	case !r.matters():
		return decision{}, false
	case r.call.foreign != "":
		return wait(fmt.Sprintf("ConfigMap %s/%s has schema-version %s, which this version does not know", RollCallNamespace, RollCallName, r.call.foreign))
	case r.stale(now):
		d, held := wait(awaited(missing))
		d.call = true
		return d, held
	case len(missing) > 0:
		return wait(awaited(missing))
	default:
		return decision{}, false
	}
}

// awaited names the hosts that hold up the binding. Its beginning is known to people and
// to kubeadm takeover (AwaitsHosts).
func awaited(missing []string) string {
	if len(missing) == 0 {
		return AwaitsHosts
	}
	return AwaitsHosts + "; none has answered on " + strings.Join(missing, ", ")
}

// AwaitsHosts begins what Status says while hosts are missing.
const AwaitsHosts = "every kube-apiserver needs a replica on its own host before the webhook binds"

// bare names the hosts without a replica though the webhook is bound.
func bare(missing []string) string {
	return "kube-apiserver runs without a replica beside it and refuses Pods on " + strings.Join(missing, ", ")
}

// absence is which hosts are missing, and since when. It is told once per set of hosts.
type absence struct {
	hosts []string
	since time.Time
	told  bool
}

// next is the absence after another look, which changes nothing while the answers to the
// last question may be on their way.
func (a absence) next(missing []string, now time.Time) absence {
	if slices.Equal(a.hosts, missing) {
		return a
	}
	return absence{hosts: missing, since: now}
}

// due tells whether it has lasted long enough to be told.
func (a absence) due(now time.Time) bool {
	return len(a.hosts) > 0 && !a.told && now.Sub(a.since) >= missingGrace
}
