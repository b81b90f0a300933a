// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/test/await"
)

// About selects the Events about one object with one reason.
type About struct {
	kind, namespace, name, reason string
}

func (a About) matches(event *eventsv1.Event) bool {
	return event.Regarding.Kind == a.kind && event.Regarding.Namespace == a.namespace &&
		event.Regarding.Name == a.name && event.Reason == a.reason
}

// home returns the namespace of Events about the object.
func (a About) home() string {
	if a.namespace == "" {
		return metav1.NamespaceDefault
	}
	return a.namespace
}

// AboutObject selects the Events about any object.
func AboutObject(kind, namespace, name, reason string) About {
	return About{kind, namespace, name, reason}
}

// AboutSecret selects the Events about a Secret.
func AboutSecret(secret *corev1.Secret, reason string) About {
	return About{"Secret", secret.Namespace, secret.Name, reason}
}

// AboutProcess selects the Events of a manager without leader election.
func AboutProcess(reason string) About {
	return About{kind: "Namespace", name: metav1.NamespaceSystem, reason: reason}
}

// AwaitEvent returns the first Event whose note contains text, once there is one.
func (c *ControlPlane) AwaitEvent(t *testing.T, about About, text string) *eventsv1.Event {
	t.Helper()
	lw := cache.NewListWatchFromClient(c.API.EventsV1().RESTClient(), "events", about.home(), fields.Everything())
	var found *eventsv1.Event
	_, err := await.Objects(Context(t), lw, &eventsv1.Event{}, func(events []*eventsv1.Event) error {
		for _, event := range events {
			if about.matches(event) && strings.Contains(event.Note, text) {
				found = event
				return nil
			}
		}
		return fmt.Errorf("no Event %v with %q", about, text)
	})
	if err != nil {
		t.Fatalf("await an Event: %v", err)
	}
	if found.ReportingController != "sa-controller-manager" {
		t.Errorf("the Event is reported by %q", found.ReportingController)
	}
	return found
}

// AwaitWarning is AwaitEvent for an Event of type Warning.
func (c *ControlPlane) AwaitWarning(t *testing.T, about About, text string) {
	t.Helper()
	if event := c.AwaitEvent(t, about, text); event.Type != corev1.EventTypeWarning {
		t.Errorf("the Event %v is of type %q, want a warning", about, event.Type)
	}
}

// Events returns the present Events.
func (c *ControlPlane) Events(t *testing.T, about About) []eventsv1.Event {
	t.Helper()
	list, err := c.API.EventsV1().Events(about.home()).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatalf("list Events: %v", err)
	}
	var found []eventsv1.Event
	for _, event := range list.Items {
		if about.matches(&event) {
			found = append(found, event)
		}
	}
	return found
}

// ExpectOne checks that there is a single Event. Two syncs may record it, that of the change and
// that of the write which answers it: client-go's recorder counts the second in the same Event.
func (c *ControlPlane) ExpectOne(t *testing.T, about About) {
	t.Helper()
	events := c.Events(t, about)
	if len(events) != 1 {
		t.Errorf("there are %d Events %v, want one", len(events), about)
		return
	}
	if count := events[0].DeprecatedCount; count > 2 { // that of core/v1
		t.Errorf("the Event %v was recorded %d times, want two at most", about, count)
	}
}
