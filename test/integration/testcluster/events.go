// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/await"
)

// AwaitEvent waits for an Event of the product about a Secret, whose note contains text.
func (c *ControlPlane) AwaitEvent(t *testing.T, secret *corev1.Secret, kind, reason, text string) {
	t.Helper()
	lw := cache.NewListWatchFromClient(c.API.EventsV1().RESTClient(), "events", secret.Namespace, fields.Everything())
	_, err := await.Objects(Context(t), lw, &eventsv1.Event{}, func(events []*eventsv1.Event) error {
		for _, event := range events {
			if event.Regarding.Kind == "Secret" && event.Regarding.Name == secret.Name && event.ReportingController == "sa-controller-manager" &&
				event.Type == kind && event.Reason == reason && strings.Contains(event.Note, text) {
				return nil
			}
		}
		return fmt.Errorf("no %s %s about Secret %s with %q", kind, reason, secret.Name, text)
	})
	testutil.Must(t, err)
}
