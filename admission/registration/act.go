// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"sa-controller-manager/internal/apiservers"
	"sa-controller-manager/internal/reconcile"
)

// quietFailures is how many consecutive failures are not logged: an apiserver needs a moment until
// it uses a new configuration.
const quietFailures = 3

const (
	// requeueAfter is when to check again if the watch is about to deliver a change.
	requeueAfter = time.Second

	// provenFor is how long the proof of what is registered in the API holds. Then it is repeated.
	provenFor = time.Minute

	// loadDelay is when to ask again after a failure: a kube-apiserver may be about to start, or to load
	// a change.
	loadDelay = 10 * time.Second
)

// prove has kube-apiserver prove that it reaches the webhook, and keeps the proof. With a loopback URL there may be
// no other kube-apiserver.
func (r *Registrar) prove(ctx context.Context, o observation, byAny bool) *failure {
	if r.config.Mode == URL && r.config.PerHost() {
		asking, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		hosts, err := apiservers.LiveHosts(asking, r.config.Client, o.now)
		if err != nil {
			return &failure{error: err, stage: Waiting, unasked: true}
		}
		if len(hosts) > 1 {
			return &failure{stage: Waiting, error: fmt.Errorf("a loopback URL leads each kube-apiserver to its own host, and they run on "+
				"several: %s; register from files or with a Service", strings.Join(hosts, ", "))}
		}
	}
	failed := r.config.prove(ctx, r.config.Client, r.config.Responder, byAny)
	if failed == nil {
		r.proven, r.missed, r.due = o.caBundle, 0, r.config.Clock.Now().Add(provenFor)
	}
	return failed
}

// bindOnceProved runs the proof and requeues. The next decision starts from the current state: a user may
// have switched the registration off during the proof.
func (r *Registrar) bindOnceProved(ctx context.Context, o observation) error {
	if failed := r.prove(ctx, o, false); failed != nil {
		r.proven = nil
		r.show(ctx, Status{State: failed.state(o.active()), Detail: failed.Error()})
		return failed
	}
	klog.FromContext(ctx).Info("Proved that kube-apiserver reaches the webhook", "url", r.config.Endpoint(mutatePath))
	r.loop.Add(Name)
	return nil
}

// proveAgain has kube-apiserver call what is registered, each minute. The first failure ends what binds by the proof,
// the second one, one after the other, what is registered.
func (r *Registrar) proveAgain(ctx context.Context, o observation, d *decision) {
	if !o.now.Before(r.due) {
		if r.lost = r.prove(ctx, o, true); r.lost != nil {
			r.missed, r.due = r.missed+1, o.now.Add(loadDelay)
		}
	}
	d.after = r.due.Sub(o.now)
	if r.missed >= 2 {
		d.status = Status{State: r.lost.state(true), Detail: r.lost.Error()}
	}
}

// write executes the decision, within the rate limit. A lost race is no error: the other write
// comes through the watch.
func (r *Registrar) write(ctx context.Context, last [kinds]last, decided decision) (time.Duration, error) {
	if len(decided.writes) > 0 {
		// The resourceVersion protects an annotation on the same object, but one on the other object may still be on
		// its way in another watch.
		live, err := getAll(ctx, r.config.Client)
		if err != nil || live[mutating].isOff() || live[validating].isOff() {
			return requeueAfter, err
		}
	}
	for _, w := range decided.writes {
		if !r.writes.AllowN(r.config.Clock.Now(), 1) {
			klog.FromContext(ctx).Info("Another client edits the webhook configuration, delaying the repair", "kind", w.kind.String(),
				"name", Name)
			return writeInterval, nil
		}
		wanted := last[w.kind].object.with(w.entries)
		if w.off {
			wanted = wanted.annotated(AnnotationOff)
		}
		err := w.kind.in(r.config.Client).put(ctx, wanted)
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("write the %s %s: %w", w.kind, Name, err)
		}
		klog.FromContext(ctx).V(2).Info("Wrote the webhook configuration",
			"kind", w.kind.String(), "name", Name, "webhooks", len(w.entries), "state", decided.status.State)
		if w.again {
			r.warn(w.kind, "WebhookConfigurationRecreated", w.note())
		}
	}
	return decided.after, nil
}

// note says why a deleted configuration exists again, and how to remove the webhook for good.
func (w write) note() string {
	const off = Annotation + "=" + AnnotationOff
	if w.off {
		return "It had the annotation " + off + " when it was deleted, and has been created again without webhooks to keep that"
	}
	return "It was deleted and has been created again. To remove the webhook: sa-controller-manager webhook unregister " +
		"--kubeconfig=/etc/kubernetes/admin.conf, or annotate it with " + off + " before you delete it"
}

// fail reports a failure, once, and returns an error that makes the queue retry.
func (r *Registrar) fail(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	r.failed++
	r.show(ctx, Status{State: r.Status().State, Detail: err.Error()})
	if r.failed >= quietFailures && err.Error() != r.reported {
		r.reported = err.Error()
		klog.FromContext(ctx).Error(err, "Failed to register the webhook, retrying")
		r.warn(mutating, "WebhookRegistrationFailed", err.Error())
	}
	return fmt.Errorf("%w: %w", reconcile.ErrStaleCache, err)
}

func (r *Registrar) warn(k kind, reason, note string) {
	r.config.Recorder.Warn(&corev1.ObjectReference{
		APIVersion: "admissionregistration.k8s.io/v1", Kind: k.String(), Name: Name,
	}, reason, note)
}
