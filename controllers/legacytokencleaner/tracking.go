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

const trackingKey = "since"

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

// check returns whether use has been tracked for long enough. The hour at which tracking began is
// unknown, so the next day is the first that counts.
func (h horizon) check(tracking *corev1.ConfigMap) idleness {
	if tracking == nil {
		return trackingAbsent
	}
	since, err := time.Parse(dateFormat, tracking.Data[trackingKey])
	if err != nil {
		return trackingInvalid
	}
	if h.cutoff.Before(since.AddDate(0, 0, 1)) {
		return trackingShort
	}
	return working
}
