// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
)

// settleDelay is how long nothing is recreated after a deletion: an earlier change, such as
// switching off the other configuration, may still be on its way in another watch.
const settleDelay = time.Second

// kind is one of the two configurations.
type kind int

const (
	mutating kind = iota
	validating
	kinds
)

func (k kind) String() string {
	return [kinds]string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}[k]
}

// observation is the input of plan.
type observation struct {
	last [kinds]last
	spec Spec
	// caBundle is the one to register, empty while it is unknown.
	caBundle []byte
	proven   bool
	now      time.Time
}

// decision is the output of plan. Without writes and probe there is nothing to do.
type decision struct {
	status Status
	writes []write
	// probe means that everything is in place for the probe.
	probe bool
	// after is when to decide again without any event, zero for never.
	after time.Duration
}

// write is the new content of one configuration.
type write struct {
	kind    kind
	again   bool // it was deleted
	off     bool // with the annotation that the deleted object had
	entries []entry
}

// plan decides. The order of the rules is that of the package comment.
func plan(o observation) decision {
	for k, one := range o.last {
		if one.object.isOff() {
			return decision{status: o.switchedOff(kind(k))}
		}
	}
	for k, one := range o.last {
		if one.object == nil && one.off {
			return o.remember(kind(k))
		}
	}
	if len(o.caBundle) == 0 {
		return decision{status: Status{State: Waiting, Detail: "there is no caBundle to register yet"}}
	}
	wanted := o.wanted()
	if o.right(mutating, wanted) && o.right(validating, wanted) {
		return decision{status: Status{State: Registered, Detail: o.spec.Endpoint("")}}
	}
	if !o.proven {
		return o.prove()
	}
	return o.bind(wanted)
}

// active reports whether kube-apiserver calls the webhook already, even if the configuration is wrong.
func (o observation) active() bool { return binds(o.entries()) }

// entries returns the webhooks of both configurations.
func (o observation) entries() []entry {
	return slices.Concat(o.last[mutating].object.webhooks(), o.last[validating].object.webhooks())
}

// caBundles returns those that kube-apiserver has now.
func (o observation) caBundles() [][]byte {
	var all [][]byte
	for _, one := range o.entries() {
		all = append(all, one.ClientConfig.CABundle)
	}
	return all
}

// follows is all that a replica knows without the Lease: perhaps none leads, and only the leader has the path proved.
const follows = "this replica does not lead; "

// followed returns the status on a replica that does not lead.
func (o observation) followed() Status {
	for k, one := range o.last {
		if one.object.isOff() {
			return Status{State: Idle, Detail: follows + o.switchedOff(kind(k)).String()}
		}
	}
	if !o.active() {
		return Status{State: Idle, Detail: follows + "the webhook is not bound"}
	}
	return Status{State: Idle, Detail: follows + "the webhook is bound"}
}

func (o observation) wanted() (wanted [kinds][]entry) {
	wanted[mutating], wanted[validating] = o.spec.entries(o.caBundle)
	return wanted
}

func (o observation) right(k kind, wanted [kinds][]entry) bool {
	found := o.last[k].object
	return found != nil && equality.Semantic.DeepEqual(found.entries, wanted[k])
}

func (o observation) switchedOff(k kind) Status {
	half := ""
	if o.active() {
		half = ", while the other configuration still binds (webhook unregister ends that)"
	}
	return Status{State: Off, Detail: fmt.Sprintf("annotation %s=%s on the %s %s%s; to switch it on: sa-controller-manager webhook "+
		"register --kubeconfig=/etc/kubernetes/admin.conf", Annotation, AnnotationOff, k, Name, half)}
}

// remember recreates a configuration that was deleted while it was switched off, with the
// annotation and without webhooks: the next leader could not know otherwise.
func (o observation) remember(k kind) decision {
	d := decision{status: o.switchedOff(k)}
	d.add(o, k, nil)
	return d
}

// bind writes the webhooks with the real rules.
func (o observation) bind(wanted [kinds][]entry) decision {
	d := decision{status: Status{State: Repairing, Detail: "writing " + Name}}
	for k := range kinds {
		if !o.right(k, wanted) {
			d.add(o, k, wanted[k])
		}
	}
	return d
}

// prove writes what the proof needs: the probe's entry, and an exemption in all bound entries.
// Correct entries are exempted too: the proof is that a call arrives, and not that a plugin or
// another webhook admits such a Pod.
func (o observation) prove() decision {
	d := decision{status: Status{State: Proving, Detail: "asking kube-apiserver to call " + o.spec.Endpoint(mutatePath)}}
	for k := range kinds {
		found := o.last[k].object.webhooks()
		stage := staged(found)
		if k == mutating {
			stage = append(stage, o.spec.probeEntry(o.caBundle))
		}
		if !equality.Semantic.DeepEqual(found, stage) {
			d.add(o, k, stage)
		}
	}
	d.probe = len(d.writes) == 0 && d.after == 0
	return d
}

// add appends a write of entries, unless the configuration was deleted just now.
func (d *decision) add(o observation, k kind, entries []entry) {
	last := o.last[k]
	if left := last.deleted.Add(settleDelay).Sub(o.now); left > 0 {
		d.after = max(d.after, left)
		return
	}
	d.writes = append(d.writes, write{kind: k, again: !last.deleted.IsZero(), off: last.off, entries: entries})
}
