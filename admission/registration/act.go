// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/cert"
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

	hostsTimeout = 5 * time.Second
)

// proof holds the certificates of the caBundle with which the apiserver has reached the webhook.
type proof []*x509.Certificate

// newProof returns an empty proof for an invalid caBundle.
func newProof(caBundle []byte) proof {
	certificates, err := cert.ParseCertsPEM(caBundle)
	if err != nil {
		return nil
	}
	return certificates
}

// covers reports whether the proof holds for caBundle too: each step of a rollover has a
// certificate in common with the one before.
func (p proof) covers(caBundle []byte) bool {
	return slices.ContainsFunc(newProof(caBundle), func(one *x509.Certificate) bool {
		return slices.ContainsFunc(p, one.Equal)
	})
}

// prove has kube-apiserver prove that it reaches the webhook. With a loopback URL there may be no other one.
func (r *Registrar) prove(ctx context.Context, responder *ProbeResponder) *failure {
	if r.config.Mode == URL && r.config.PerHost() {
		asking, cancel := context.WithTimeout(ctx, hostsTimeout)
		defer cancel()
		hosts, err := apiservers.LiveHosts(asking, r.config.Client, r.config.Clock.Now())
		if err != nil {
			return &failure{error: err, stage: Waiting, unasked: true}
		}
		if len(hosts) > 1 {
			return &failure{stage: Waiting, error: fmt.Errorf("a loopback URL leads each kube-apiserver to its own host, and they run on "+
				"several: %s; use --webhook-registration=static or service", strings.Join(hosts, ", "))}
		}
	}
	return r.config.prove(ctx, r.config.Client, responder)
}

// bindOnceProved runs the proof and requeues. The next decision starts from the current state: a user may
// have switched the registration off during the proof.
func (r *Registrar) bindOnceProved(ctx context.Context, o observation) error {
	if failed := r.prove(ctx, r.config.Responder); failed != nil {
		r.proven = nil
		r.setStatus(Status{State: failed.state(o.active()), Detail: failed.Error()})
		return failed
	}
	r.proven, r.missed, r.due = newProof(o.caBundle), 0, r.config.Clock.Now().Add(provenFor)
	klog.FromContext(ctx).Info("Proved that kube-apiserver reaches the webhook", "url", r.config.Endpoint(mutatePath))
	r.loop.Add(Name)
	return nil
}

// proveAgain has kube-apiserver call what is registered, each minute. A proof is lost with the second failure, one after
// the other.
func (r *Registrar) proveAgain(ctx context.Context, o observation, d *decision) {
	if !o.now.Before(r.due) {
		r.lost = r.prove(ctx, nil)
		r.missed, r.due = r.missed+1, o.now.Add(loadDelay)
		if r.lost == nil {
			r.proven, r.missed, r.due = newProof(o.caBundle), 0, o.now.Add(provenFor)
		}
	}
	d.after = r.due.Sub(o.now)
	if r.missed < 2 {
		return
	}
	if !r.lost.unasked {
		r.proven = nil
	}
	d.status = Status{State: r.lost.state(true), Detail: r.lost.Error()}
}

// write executes the decision, within the rate limit. A lost race is no error: the other write
// comes through the watch.
func (r *Registrar) write(ctx context.Context, last [kinds]last, decided decision) (time.Duration, error) {
	if len(decided.writes) > 0 {
		if off, err := r.isOff(ctx); err != nil || off {
			return requeueAfter, err
		}
	}
	for _, w := range decided.writes {
		if !r.writes.AllowN(r.config.Clock.Now(), 1) {
			klog.FromContext(ctx).Info("Another client edits the webhook configuration, delaying the repair", "kind", w.kind.String(), "name", Name)
			return writeInterval, nil
		}
		err := w.kind.in(r.config.Client).put(ctx, w.onto(last[w.kind].object))
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("write the %s %s: %w", w.kind, Name, err)
		}
		klog.FromContext(ctx).V(2).Info("Wrote the webhook configuration",
			"kind", w.kind.String(), "name", Name, "webhooks", len(w.entries), "state", decided.status.State)
		if w.again {
			r.watched.recreate(w.kind, w.off, r.config.Clock.Now())
			r.recordRecreated(w)
		}
	}
	return decided.after, nil
}

// onto returns found with the write applied. Found is nil if it does not exist.
func (w write) onto(found *object) *object {
	wanted := found.with(w.entries)
	if w.off {
		return wanted.annotated(AnnotationOff)
	}
	return wanted
}

// isOff asks the API before a write. The resourceVersion protects an annotation on the same object,
// but one on the other object may still be on its way in another watch.
func (r *Registrar) isOff(ctx context.Context) (bool, error) {
	live, err := getAll(ctx, r.config.Client)
	return live[mutating].isOff() || live[validating].isOff(), err
}

// recordRecreated records an Event that says why a deleted configuration exists again, and how to
// remove the webhook for good.
func (r *Registrar) recordRecreated(w write) {
	const off = Annotation + "=" + AnnotationOff
	note := "It was deleted and has been created again. To remove the webhook: sa-controller-manager webhook unregister " +
		"--kubeconfig=/etc/kubernetes/admin.conf, or annotate it with " + off + " before you delete it"
	if w.off {
		note = "It had the annotation " + off + " when it was deleted, and has been created again without webhooks to keep that"
	}
	r.warn(w.kind, "WebhookConfigurationRecreated", note)
}

// fail reports a failure, once, and returns an error that makes the queue retry.
func (r *Registrar) fail(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	r.failed++
	r.setStatus(Status{State: r.Status().State, Detail: err.Error()})
	if r.failed >= quietFailures && err.Error() != r.reported {
		r.reported = err.Error()
		klog.FromContext(ctx).Error(err, "Failed to register the webhook, retrying")
		r.warn(mutating, "WebhookRegistrationFailed", err.Error())
	}
	return fmt.Errorf("%w: %w", reconcile.ErrStaleCache, err)
}

// show publishes a status, but keeps the error of a failure that is being retried.
func (r *Registrar) show(ctx context.Context, status Status) {
	last := r.Status()
	if last.State == status.State && r.failed > 0 {
		return
	}
	r.setStatus(status)
	if last.State == status.State {
		return
	}
	if last.State == Registered && (status.State == Repairing || status.State == Deleted) {
		r.config.Metrics.repaired()
	}
	klog.FromContext(ctx).Info("Changed the state of the webhook registration", "state", status.State, "detail", status.Detail)
}

func (r *Registrar) warn(k kind, reason, note string) {
	r.config.Recorder.Warn(&corev1.ObjectReference{
		APIVersion: "admissionregistration.k8s.io/v1", Kind: k.String(), Name: Name,
	}, reason, note)
}
