// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
)

// recreateInterval is how long a configuration that was deleted a second time stays
// away. Somebody wants it to, and may not know the right way.
const recreateInterval = 5 * time.Minute

// settleDelay is how long a deletion is left alone: what was done just before it, such as
// switching off the other configuration, may be on its way in another watch.
const settleDelay = time.Second

// kind is one of the two configurations.
type kind int

const (
	mutating kind = iota
	validating
	kinds
)

func (k kind) String() string {
	if k == mutating {
		return "MutatingWebhookConfiguration"
	}
	return "ValidatingWebhookConfiguration"
}

// observation is all that plan decides on.
type observation struct {
	last [kinds]last
	spec Spec
	// caBundle is what to register, empty while it is not known.
	caBundle []byte
	proven   bool
	hosts    hostCheck
	probeID  string
	now      time.Time
}

// decision is what to do. Without writes and probe it is to wait.
type decision struct {
	status Status
	writes []write
	// probe means that all is in place for the proof.
	probe bool
	// after is when time alone will have changed the decision, zero for never.
	after time.Duration
}

// write is what one configuration is to hold.
type write struct {
	kind    kind
	create  bool
	again   bool // somebody deleted it
	off     bool // with the annotation, which went with it
	entries []entry
}

// plan decides, first rule first: see the package comment.
func plan(o observation) decision {
	for k, one := range o.last {
		if one.object.isOff() {
			return decision{status: switchedOff(kind(k))}
		}
	}
	for k, one := range o.last {
		if one.object == nil && one.off {
			return o.remember(kind(k))
		}
	}
	if len(o.caBundle) == 0 {
		return decision{status: Status{Waiting, "there is no caBundle to register yet"}}
	}
	wanted := o.wanted()
	if o.right(mutating, wanted) && o.right(validating, wanted) {
		return o.registered()
	}
	if !o.proven {
		return o.prove()
	}
	if !o.active() {
		if d, held := o.hosts.hold(); held {
			return d
		}
	}
	return o.bind(wanted)
}

// active reports whether kube-apiserver calls the webhook already, however wrong what it was
// told may be. Then no host is waited for: it is repaired and never taken back, because
// Pods that are refused on one host are a lesser harm than Pods without a token on all.
func (o observation) active() bool { return binds(o.entries()) }

// entries are those of both configurations.
func (o observation) entries() []entry {
	return slices.Concat(o.last[mutating].object.webhooks(), o.last[validating].object.webhooks())
}

// caBundles are those that kube-apiserver has now.
func (o observation) caBundles() [][]byte {
	var all [][]byte
	for _, one := range o.entries() {
		all = append(all, one.ClientConfig.CABundle)
	}
	return all
}

// registered says which hosts have come without a replica, and goes on to look at them.
func (o observation) registered() decision {
	d := decision{status: Status{Registered, o.spec.Endpoint("")}}
	if o.hosts.applies {
		d.after = heartbeatInterval
	}
	if len(o.hosts.shown) > 0 {
		d.status.Detail += "; " + withoutReplica(o.hosts.shown)
	}
	return d
}

// followed is what a replica that does not lead can say.
func (o observation) followed() Status {
	for k, one := range o.last {
		if one.object.isOff() {
			return Status{Idle, "another replica leads; " + switchedOff(kind(k)).String()}
		}
	}
	if !o.active() {
		return Status{Idle, "another replica leads; kube-apiserver does not call the webhook"}
	}
	return Status{Idle, "another replica leads; kube-apiserver calls the webhook"}
}

func (o observation) wanted() (wanted [kinds][]entry) {
	wanted[mutating], wanted[validating] = o.spec.entries(o.caBundle)
	return wanted
}

func (o observation) right(k kind, wanted [kinds][]entry) bool {
	found := o.last[k].object
	return found != nil && equality.Semantic.DeepEqual(found.entries, wanted[k])
}

func switchedOff(k kind) Status {
	return Status{Off, fmt.Sprintf("annotation %s=%s on the %s %s; to switch it on: sa-controller-manager webhook register --kubeconfig=/etc/kubernetes/admin.conf", Annotation, AnnotationOff, k, Name)}
}

// remember writes down what the next leader could not know: that the object said off
// when it was deleted. What comes back says that and holds no webhooks.
func (o observation) remember(k kind) decision {
	var d decision
	d.add(o, k, nil)
	for i := range d.writes {
		d.writes[i].off = true
	}
	d.status = switchedOff(k)
	return d
}

// bind writes the real rules.
func (o observation) bind(wanted [kinds][]entry) decision {
	d := decision{status: Status{Repairing, "writing " + Name}}
	for k := range kinds {
		if !o.right(k, wanted) {
			d.add(o, k, wanted[k])
		}
	}
	return d
}

// prove puts in place what the proof needs: the probe's entry, and a way past all that is
// bound. What is right may be in its way too: the proof is that a call arrives, and not
// that a plugin or another webhook lets such a Pod pass.
func (o observation) prove() decision {
	d := decision{status: Status{Proving, "asking kube-apiserver to call " + o.spec.Endpoint(mutatePath)}}
	for k := range kinds {
		found := o.last[k].object.webhooks()
		stage := staged(found, o.probeID)
		if k == mutating {
			stage = append(stage, o.spec.probeEntry(o.probeID, o.caBundle))
		}
		if !equality.Semantic.DeepEqual(found, stage) {
			d.add(o, k, stage)
		}
	}
	d.probe = len(d.writes) == 0 && d.after == 0
	return d
}

// add writes entries into a configuration, unless it was deleted and has been created
// again not long ago.
func (d *decision) add(o observation, k kind, entries []entry) {
	last := o.last[k]
	again := last.object == nil && last.existed
	if left := last.recreated.Add(recreateInterval).Sub(o.now); again && left > 0 {
		d.after = max(d.after, left)
		d.status = Status{Deleted, fmt.Sprintf("the %s %s was deleted again and stays away for %s", k, Name, left.Round(time.Second))}
		return
	}
	if left := last.deleted.Add(settleDelay).Sub(o.now); again && left > 0 {
		d.after = max(d.after, left)
		return
	}
	d.writes = append(d.writes, write{kind: k, create: last.object == nil, again: again, entries: entries})
}
