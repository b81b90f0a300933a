// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"sa-controller-manager/internal/meta"
)

// watchHosts begins to watch which kube-apiservers there are, if that matters.
func (r *Registrar) watchHosts(ctx context.Context, running *sync.WaitGroup) error {
	if r.config.Attendance == nil || !r.config.PerHost() {
		return nil
	}
	leases := newIdentityInformer(r.config.Client)
	handler, err := leases.AddEventHandler(r.hostHandler())
	if err != nil {
		return fmt.Errorf("watch the identity Leases of kube-apiserver: %w", err)
	}
	r.leases = leases
	running.Go(func() { leases.RunWithContext(ctx) })
	running.Go(func() {
		select {
		case <-ctx.Done():
		case <-handler.HasSyncedChecker().Done():
			r.queue.Add(Name) // that there are none is told by no event
		}
	})
	return nil
}

// hostHandler looks when a kube-apiserver comes or goes, and not each time that one
// renews its Lease.
func (r *Registrar) hostHandler() cache.ResourceEventHandler {
	look := func(any) { r.queue.Add(Name) }
	return cache.ResourceEventHandlerFuncs{
		AddFunc: look,
		UpdateFunc: func(before, after any) {
			b, _ := before.(*coordinationv1.Lease)
			a, _ := after.(*coordinationv1.Lease)
			if b == nil || a == nil || b.Labels[corev1.LabelHostname] != a.Labels[corev1.LabelHostname] || b.UID != a.UID || revived(b, a) {
				look(after)
			}
		},
		DeleteFunc: look,
	}
}

// forgetHosts is for who no longer leads: the next leader asks anew.
func (r *Registrar) forgetHosts() {
	r.leases, r.round, r.called, r.absence = nil, "", time.Time{}, absence{}
	r.config.Metrics.missing(0)
}

// roll is what is known of the hosts now.
func (r *Registrar) roll(now time.Time) roll {
	if r.leases == nil {
		return roll{}
	}
	attendance := r.config.Attendance
	return roll{
		applies: true,
		synced:  r.leases.HasSynced() && attendance.synced(),
		hosts:   liveHosts(identities(r.leases.GetStore()), now),
		self:    attendance.config.Host,
		call:    readRollCall(attendance.found()),
		round:   r.round,
		called:  r.called,
	}
}

// callRoll asks who is there. The answers come through the watch.
func (r *Registrar) callRoll(ctx context.Context) error {
	round := rand.Text()
	found := r.config.Attendance.found()
	question := asks(found, round, r.config.Endpoint(""))
	configMaps := r.config.Client.CoreV1().ConfigMaps(RollCallNamespace)
	var err error
	if found == nil {
		_, err = configMaps.Create(ctx, question, metav1.CreateOptions{FieldManager: meta.FieldManager})
	} else {
		_, err = configMaps.Update(ctx, question, metav1.UpdateOptions{FieldManager: meta.FieldManager})
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		r.queue.AddAfter(Name, lookAgain)
		return nil
	}
	if err != nil {
		return fmt.Errorf("write configmap %s/%s, which asks for a replica beside each kube-apiserver: %w", RollCallNamespace, RollCallName, err)
	}
	klog.FromContext(ctx).V(2).Info("Asked for a replica beside each kube-apiserver", "round", round)
	r.round, r.called = round, r.config.Clock.Now()
	return nil
}

// revived tells whether a Lease is renewed that did not count any more, because nobody
// had renewed it for so long.
func revived(before, after *coordinationv1.Lease) bool {
	return before.Spec.RenewTime == nil || after.Spec.RenewTime != nil && after.Spec.RenewTime.Sub(before.Spec.RenewTime.Time) > identityAge
}

// noteMissing tells of hosts that stay without a replica. While answers may be on their
// way nobody is missing who was not missing before.
func (r *Registrar) noteMissing(ctx context.Context, o observation) {
	if o.roll.matters() && (o.roll.lost() || o.now.Sub(o.roll.called) < answerTime) {
		return
	}
	missing := o.roll.missing()
	r.config.Metrics.missing(len(missing))
	if r.absence = r.absence.next(missing, o.now); !r.absence.due(o.now) {
		return
	}
	r.absence.told = true
	note := awaited(missing)
	if o.bound() {
		note = bare(missing) + "; start one there, or take the webhook out: sa-controller-manager webhook unregister --kubeconfig=/etc/kubernetes/admin.conf"
	}
	klog.FromContext(ctx).Info("Hosts of kube-apiserver have no replica", "hosts", strings.Join(missing, ", "), "bound", o.bound())
	r.warn(mutating, "WebhookHostWithoutReplica", "Register", note)
}
