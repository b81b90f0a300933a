// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

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

// about selects the Events about one object by one reason.
type about struct {
	kind, namespace, name, reason string
}

func (a about) matches(event *eventsv1.Event) bool {
	return event.Regarding.Kind == a.kind && event.Regarding.Namespace == a.namespace &&
		event.Regarding.Name == a.name && event.Reason == a.reason
}

// home is the namespace that Events about the object are in.
func (a about) home() string {
	if a.namespace == "" {
		return metav1.NamespaceDefault
	}
	return a.namespace
}

func aboutSecret(secret *corev1.Secret, reason string) about {
	return about{"Secret", secret.Namespace, secret.Name, reason}
}

func aboutAccount(account *corev1.ServiceAccount, reason string) about {
	return about{"ServiceAccount", account.Namespace, account.Name, reason}
}

// aboutProcess is about a manager without leader election.
func aboutProcess(reason string) about {
	return about{kind: "Namespace", name: metav1.NamespaceSystem, reason: reason}
}

// awaitEvent returns the first Event whose note contains text, once there is one.
func (c *controlPlane) awaitEvent(t *testing.T, about about, text string) *eventsv1.Event {
	t.Helper()
	lw := cache.NewListWatchFromClient(c.client.EventsV1().RESTClient(), "events", about.home(), fields.Everything())
	var found *eventsv1.Event
	_, err := await.Objects(limited(t), lw, &eventsv1.Event{}, func(events []*eventsv1.Event) error {
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

// awaitWarning is awaitEvent for what was refused or could not be done.
func (c *controlPlane) awaitWarning(t *testing.T, about about, text string) {
	t.Helper()
	if event := c.awaitEvent(t, about, text); event.Type != corev1.EventTypeWarning {
		t.Errorf("the Event %v is of type %q, want a warning", about, event.Type)
	}
}

// events are those that there are now.
func (c *controlPlane) events(t *testing.T, about about) []eventsv1.Event {
	t.Helper()
	list, err := c.client.EventsV1().Events(about.home()).List(t.Context(), metav1.ListOptions{})
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

// once checks that an Event was told a single time.
func (c *controlPlane) once(t *testing.T, about about) {
	t.Helper()
	events := c.events(t, about)
	if len(events) != 1 {
		t.Errorf("there are %d Events %v, want one", len(events), about)
		return
	}
	if series := events[0].Series; series != nil {
		t.Errorf("the Event %v was told %d times, want once", about, series.Count)
	}
}
