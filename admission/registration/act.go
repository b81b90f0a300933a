// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"

	"sa-controller-manager/internal/reconcile"
)

// quietFailures is how many tries may fail before anybody is told: an apiserver needs
// a moment to learn of what has just been registered.
const quietFailures = 3

// requeueAfter is for what the watch is about to show.
const requeueAfter = time.Second

// proof are the certificates of a caBundle with which the apiserver has reached the webhook.
type proof []*x509.Certificate

// newProof takes a damaged caBundle for one without certificates.
func newProof(caBundle []byte) proof {
	certificates, err := cert.ParseCertsPEM(caBundle)
	if err != nil {
		return nil
	}
	return certificates
}

// covers reports whether the proof holds for caBundle too: a rollover changes it in steps
// that have a certificate in common.
func (p proof) covers(caBundle []byte) bool {
	return slices.ContainsFunc(newProof(caBundle), func(one *x509.Certificate) bool {
		return slices.ContainsFunc(p, one.Equal)
	})
}

// probe asks for the proof. What is decided next is decided anew: while it was asked
// for, somebody may have switched the registration off.
func (r *Registrar) probe(ctx context.Context, caBundle []byte) error {
	if err := r.prove(ctx); err != nil {
		return err
	}
	r.proven = newProof(caBundle)
	klog.FromContext(ctx).Info("kube-apiserver reaches the webhook", "url", r.config.Endpoint(mutatePath))
	r.loop.Add(Name)
	return nil
}

// write does what was decided, unless that was done too often lately. Losing a race is
// no error: what the winner wrote comes through the watch.
func (r *Registrar) write(ctx context.Context, last [kinds]last, decided decision) (time.Duration, error) {
	if len(decided.writes) > 0 {
		if off, err := r.isOff(ctx); err != nil || off {
			return requeueAfter, err
		}
	}
	for _, w := range decided.writes {
		if !r.writes.AllowN(r.config.Clock.Now(), 1) {
			klog.FromContext(ctx).Info("Somebody else keeps writing the webhook configuration, waiting", "kind", w.kind.String(), "name", Name)
			return writeInterval, nil
		}
		err := w.kind.in(r.config.Client).put(ctx, w.onto(last[w.kind].object))
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("write the %s %s: %w", w.kind, Name, err)
		}
		klog.FromContext(ctx).V(2).Info("Wrote the webhook configuration", "kind", w.kind.String(), "name", Name, "webhooks", len(w.entries), "state", decided.status.State)
		if w.again {
			r.watched.recreate(w.kind, w.off, r.config.Clock.Now())
			r.recordRecreated(w)
		}
	}
	return decided.after, nil
}

// onto is what found becomes, nil if it does not exist.
func (w write) onto(found *object) *object {
	wanted := found.with(w.entries)
	if w.off {
		return wanted.annotated(AnnotationOff)
	}
	return wanted
}

// isOff asks the API before anything is written. The resourceVersion keeps us from
// overwriting an annotation on the same object, but that on the other one may be on its
// way in another watch.
func (r *Registrar) isOff(ctx context.Context) (bool, error) {
	live, err := getAll(ctx, r.config.Client)
	return live[mutating].isOff() || live[validating].isOff(), err
}

// recordRecreated tells who has deleted a configuration how to do it so that it lasts, or
// why it is there again, empty.
func (r *Registrar) recordRecreated(w write) {
	note := fmt.Sprintf("it was deleted and has been created again; to take the webhook out: sa-controller-manager webhook unregister --kubeconfig=/etc/kubernetes/admin.conf, or annotate it with %s=%s first", Annotation, AnnotationOff)
	if w.off {
		note = fmt.Sprintf("it said %s=%s when it was deleted, and has been created again without webhooks so that this lasts", Annotation, AnnotationOff)
	}
	r.warn(w.kind, "WebhookConfigurationRecreated", "Register", note)
}

// fail makes a failure known, once. The queue only has to try again.
func (r *Registrar) fail(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	r.failed++
	r.setStatus(Status{r.Status().State, err.Error()})
	if r.failed >= quietFailures && err.Error() != r.reported {
		r.reported = err.Error()
		klog.FromContext(ctx).Error(err, "The webhook is not registered as it should be, trying again")
		r.warn(mutating, "WebhookRegistrationFailed", "Register", err.Error())
	}
	return fmt.Errorf("%w: %w", reconcile.ErrStaleCache, err)
}

// show keeps the reason of a failure that is still being worked on.
func (r *Registrar) show(ctx context.Context, status Status) {
	last := r.Status()
	if last.State == status.State && r.failed > 0 {
		return
	}
	r.setStatus(status)
	if last.State == status.State {
		return
	}
	klog.FromContext(ctx).Info("Webhook registration", "state", status.State, "detail", status.Detail)
	if r.config.Changed != nil {
		r.config.Changed(status.State)
	}
}

func (r *Registrar) warn(k kind, reason, action, note string) {
	r.config.Recorder.Warn(&corev1.ObjectReference{
		APIVersion: "admissionregistration.k8s.io/v1", Kind: k.String(), Name: Name,
	}, reason, action, note)
}
