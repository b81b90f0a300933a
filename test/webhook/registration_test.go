// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"regexp"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// unregistered wants no configuration in the API.
func (c *cluster) unregistered(t *testing.T) {
	t.Helper()
	_, mutating := c.mutating().Get(t.Context(), configurationName, metav1.GetOptions{})
	_, validating := c.validating().Get(t.Context(), configurationName, metav1.GetOptions{})
	for _, err := range []error{mutating, validating} {
		if !apierrors.IsNotFound(err) {
			t.Errorf("get a configuration: got %v, want that there is none", err)
		}
	}
}

// awaitRegistration returns once the manager, which is ready, says that of its
// registration.
func (m *manager) awaitRegistration(t *testing.T, state string) {
	t.Helper()
	line := regexp.MustCompile(`(?m)^\[\+\]webhook-registration ok: ` + state + `:`)
	poll(t, "await that the registration is "+state, func(ctx context.Context) error {
		report, err := m.Get(ctx, "/readyz?verbose")
		if err == nil && !line.MatchString(report) {
			err = fmt.Errorf("the report is:\n%s", report)
		}
		return err
	})
}
