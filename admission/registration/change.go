// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"sa-controller-manager/internal/atomicfile"
	"sa-controller-manager/internal/meta"
)

// obsoleteDelay is how long both configurations must have been in the API before the files go. It is
// longer than kube-apiserver needs to see them, and than a leader in mode static, which deletes them,
// relies on the last heartbeat of this host in that mode.
const obsoleteDelay = 2 * heartbeatTimeout

// leaveFiles removes the files of mode static once the configurations in the API replace them.
func (r *Registrar) leaveFiles(ctx context.Context, o observation) error {
	found := false
	for _, path := range r.config.Obsolete {
		_, err := os.Stat(path)
		found = found || err == nil
	}
	r.config.Metrics.registeredTwice(o.active() && (found || r.config.Mode == Static))
	if !found || !o.complete() {
		r.right = time.Time{}
		return nil
	}
	if r.right.IsZero() {
		r.right = o.now
	}
	if left := r.right.Add(obsoleteDelay).Sub(o.now); left > 0 {
		r.loop.AddAfter(Name, left)
		return nil
	}
	// The watch may be silent, and what it has shown deleted.
	live, err := getAll(ctx, r.config.Client)
	for k, one := range live {
		if err == nil && (one == nil || one.meta.ResourceVersion != o.last[k].object.meta.ResourceVersion) {
			err = fmt.Errorf("the %s %s has just changed", kind(k), Name)
		}
	}
	if err != nil {
		return fmt.Errorf("keep the static registration of this host: %w", err)
	}
	for _, path := range r.config.Obsolete {
		if err := atomicfile.Remove(path); err != nil {
			return fmt.Errorf("remove the static registration of this host: %w", err)
		}
	}
	klog.FromContext(ctx).Info("Removed the static registration of this host, because the API has the webhook configurations",
		"files", r.config.Obsolete)
	r.config.Metrics.registeredTwice(false)
	return nil
}

// complete reports whether both configurations are as they should be.
func (o observation) complete() bool {
	wanted := o.wanted()
	return len(o.caBundle) > 0 && o.right(mutating, wanted) && o.right(validating, wanted)
}

// leaveAPI deletes the configurations in the API once the files of every host replace them.
func (r *Registrar) leaveAPI(ctx context.Context, o observation) (time.Duration, error) {
	if !o.exists() {
		r.setStatus(Status{State: Idle})
		return 0, nil
	}
	stays := o.stays()
	if stays == nil {
		stays = r.config.Files.Check()
	}
	if stays != nil {
		status := Status{Idle, "the configurations in the API stay: " + stays.Error()}
		if status != r.Status() {
			klog.FromContext(ctx).Info("Kept the webhook configurations in the API beside the files", "reason", stays.Error())
			r.setStatus(status)
		}
		return requeueAfter, nil
	}
	if r.config.Retire != nil {
		if err := r.config.Retire(ctx); err != nil {
			return 0, err
		}
	}
	for k, one := range o.last {
		if one.object == nil {
			continue
		}
		err := kind(k).in(r.config.Client).remove(ctx, one.object)
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			continue // the watch brings what has changed
		}
		if err != nil {
			return 0, fmt.Errorf("delete the %s %s: %w", kind(k), Name, err)
		}
		klog.FromContext(ctx).Info("Deleted the webhook configuration, because every kube-apiserver has loaded it from a file",
			"kind", kind(k).String(), "name", Name)
	}
	return requeueAfter, nil
}

// Exists reports whether the API has one of the configurations.
func (r *Registrar) Exists() bool { return observation{last: r.watched.get()}.exists() }

func (o observation) exists() bool {
	return o.last[mutating].object != nil || o.last[validating].object != nil
}

// stays returns why the configurations in the API must stay beside the files, nil if they may go.
func (o observation) stays() error {
	for k, one := range o.last {
		switch found := one.object; {
		case found.isOff():
			return errors.New(switchedOff(kind(k)).String())
		case found != nil && !meta.OnlyOurs(&found.meta):
			return fmt.Errorf("another client has changed the %s %s; delete both if nobody needs them", kind(k), Name)
		}
	}
	switch {
	case o.hosts.unknown != nil:
		return o.hosts.unknown
	case len(o.hosts.missing) > 0:
		return errors.New("no heartbeat with --webhook-registration=static and loaded files from " + strings.Join(o.hosts.missing, ", "))
	}
	return nil
}
