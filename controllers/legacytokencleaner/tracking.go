// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package legacytokencleaner

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TrackingConfigMap is the one in kube-system that has the day since which kube-apiserver writes the last-used
// labels (pkg/controlplane/controller/legacytokentracking).
const TrackingConfigMap = "kube-apiserver-legacy-service-account-token-tracking"

// idleness is why a run does nothing. It is a value of a metric's label.
type idleness string

const (
	working         idleness = ""
	trackingAbsent  idleness = "tracking-absent"
	trackingInvalid idleness = "tracking-invalid"
	trackingShort   idleness = "tracking-too-short"
	clockWrong      idleness = "clock-differs"
)

// tracking returns the ConfigMap, nil if there is none. That it is missing or has no date is no
// error: kube-apiserver fixes both.
func (c *Controller) tracking(ctx context.Context) (*corev1.ConfigMap, error) {
	tracking, err := c.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, TrackingConfigMap, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look up since when legacy tokens are tracked, in config map %s/%s: %w",
			metav1.NamespaceSystem, TrackingConfigMap, err)
	}
	return tracking, nil
}

// TrackedSince reads since when use is tracked. The hour at which that began is unknown, so the next day is the first
// that counts.
func TrackedSince(tracking *corev1.ConfigMap) (since time.Time, ok bool) {
	began, err := time.Parse(dateFormat, tracking.Data["since"])
	return began.AddDate(0, 0, 1), err == nil
}

// check returns whether use has been tracked for long enough.
func (h horizon) check(tracking *corev1.ConfigMap) idleness {
	if tracking == nil {
		return trackingAbsent
	}
	since, ok := TrackedSince(tracking)
	switch {
	case !ok:
		return trackingInvalid
	case h.cutoff.Before(since):
		return trackingShort
	}
	return working
}
