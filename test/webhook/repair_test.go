// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/await"
)

// repairLimit is how long an edit by hand may last.
const repairLimit = 2 * time.Second

// TestEditsAreRepaired covers what people and other programs do to configurations that
// are not theirs.
func TestEditsAreRepaired(t *testing.T) {
	c := controlPlane(t)
	c.manage(t)
	pem, err := os.ReadFile(c.CAFile())
	testutil.Must(t, err)
	wrongCA := fmt.Sprintf(`[{"op":"replace","path":"/webhooks/0/clientConfig/caBundle","value":%q}]`, base64.StdEncoding.EncodeToString(pem))
	cases := []struct{ name, patch string }{
		{"caBundle", wrongCA},
		{"rules", `[{"op":"replace","path":"/webhooks/0/rules/0/operations","value":["DELETE"]}]`},
		{"failurePolicy", `[{"op":"replace","path":"/webhooks/0/failurePolicy","value":"Ignore"}]`},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			mutating := c.awaitMutating(t, func(*mutatingConfiguration) error { return nil })
			validating := c.awaitValidating(t, func(*validatingConfiguration) error { return nil })

			begun := time.Now()
			c.patchMutating(t, tc.patch)
			c.awaitMutating(t, func(got *mutatingConfiguration) error { return same(mutating.Webhooks, got.Webhooks) })
			inTime(t, begun)

			begun = time.Now()
			c.patchValidating(t, tc.patch)
			c.awaitValidating(t, func(got *validatingConfiguration) error { return same(validating.Webhooks, got.Webhooks) })
			inTime(t, begun)
		})
	}
	c.awaitBound(t)
}

func same[T any](want, got T) error {
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("not repaired (-want +got):\n%s", diff)
	}
	return nil
}

func inTime(t *testing.T, begun time.Time) {
	t.Helper()
	await.Within(t, "the repair", time.Since(begun), repairLimit)
}

// TestDeletionIsRepairedOnce deletes a configuration twice: somebody who does that does
// not know the right way, which an Event names.
func TestDeletionIsRepairedOnce(t *testing.T) {
	c := controlPlane(t)
	m := c.manage(t)
	first := c.awaitMutating(t, func(*mutatingConfiguration) error { return nil })
	begun := time.Now()
	c.deleteMutating(t, first.UID)
	second := c.awaitMutating(t, func(got *mutatingConfiguration) error {
		if got.UID == first.UID {
			return errors.New("it is still the first one")
		}
		return same(first.Webhooks, got.Webhooks)
	})
	inTime(t, begun)
	c.awaitBound(t)
	c.awaitEvent(t, "WebhookConfigurationRecreated", second.Name, "webhook unregister")

	c.deleteMutating(t, second.UID)
	m.awaitRegistration(t, "deleted")
	c.awaitAccount(t, c.namespace(t), "default")
	if _, err := c.mutating().Get(t.Context(), configurationName, metav1.GetOptions{}); ignoreNotFound(err) != nil || err == nil {
		t.Errorf("want that it stays away, got: %v", err)
	}
}

func (c *cluster) deleteMutating(t *testing.T, uid types.UID) {
	t.Helper()
	err := c.mutating().Delete(t.Context(), configurationName, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	testutil.Must(t, err)
}

// awaitEvent returns once there is an Event about the object of that name, with that
// reason and text.
func (c *cluster) awaitEvent(t *testing.T, reason, name, text string) {
	t.Helper()
	lw := cache.NewListWatchFromClient(c.client.CoreV1().RESTClient(), "events", metav1.NamespaceDefault, fields.Everything())
	_, err := await.Objects(limited(t), lw, &corev1.Event{}, func(events []*corev1.Event) error {
		for _, event := range events {
			if event.Reason == reason && event.InvolvedObject.Name == name && strings.Contains(event.Message, text) {
				return nil
			}
		}
		return fmt.Errorf("none of %d says %q", len(events), text)
	})
	if err != nil {
		t.Errorf("await an Event: %v", err)
	}
}
