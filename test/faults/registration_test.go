// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/faults/workload"
	"sa-controller-manager/test/integration/testcluster"
)

// registrations are faults of the webhook's registration.
var registrations = []fault{
	{name: "mutating-deleted", excuse: bare, once: true, inject: tampers(drop(mutating))},
	{name: "validating-deleted", once: true, inject: tampers(drop(validating))},
	{name: "ca-bundle-edited", excuse: refused, inject: tampers(editBundle(mutating))},
	{name: "rules-edited", excuse: bare, inject: tampers(edit(mutating, "/webhooks", []any{}))},
	{name: "policy-edited", excuse: bare, inject: tampers(edit(mutating, "/webhooks/0/failurePolicy", "Ignore"))},
	{name: "validating-bundle-edited", excuse: refused, inject: tampers(editBundle(validating))},
	{name: "validating-rules-edited", inject: tampers(edit(validating, "/webhooks", []any{}))},
}

// repairLimit is how long a configuration may stay changed on a healthy watch: twice the 2 s that are promised, because a
// race-enabled build is slower.
const repairLimit = 4 * time.Second

// tampers is a fault that ends when the registration is as it was.
func tampers(do func(ctx context.Context, w *world) error) func(*testing.T, *world) func() {
	return func(t *testing.T, w *world) func() {
		before, begun := w.awaitRegistered(t), time.Now()
		testutil.Must(t, do(t.Context(), w))
		return func() {
			testcluster.Poll(t, "promise 5: await that the registration is repaired", func() error {
				now, err := w.registration(t.Context())
				if differ := cmp.Diff(before, now); err == nil && differ != "" {
					return errors.New(differ)
				}
				return err
			})
			if !testing.Short() {
				await.Within(t, "the repair of the registration", time.Since(begun), repairLimit)
			}
		}
	}
}

// configuration is one of the two.
type configuration string

const (
	mutating   configuration = "mutatingwebhookconfigurations"
	validating configuration = "validatingwebhookconfigurations"
)

// edit puts a value at a path of a configuration.
func edit(which configuration, path string, value any) func(context.Context, *world) error {
	return func(ctx context.Context, w *world) error {
		body, err := json.Marshal([]map[string]any{{"op": "add", "path": path, "value": value}})
		if err != nil {
			return err
		}
		return w.API.AdmissionregistrationV1().RESTClient().Patch(types.JSONPatchType).Resource(string(which)).
			Name(workload.ConfigurationName).Body(body).Do(ctx).Error()
	}
}

// editBundle has kube-apiserver trust another CA.
func editBundle(which configuration) func(context.Context, *world) error {
	return func(ctx context.Context, w *world) error {
		stranger, err := os.ReadFile(w.cluster.ClientCAFile())
		if err != nil {
			return err
		}
		return edit(which, "/webhooks/0/clientConfig/caBundle", stranger)(ctx, w)
	}
}

// drop deletes a configuration.
func drop(which configuration) func(context.Context, *world) error {
	return func(ctx context.Context, w *world) error {
		return w.API.AdmissionregistrationV1().RESTClient().Delete().Resource(string(which)).
			Name(workload.ConfigurationName).Do(ctx).Error()
	}
}

// registered is what kube-apiserver knows of the webhook.
type registered struct {
	Mutating   []admissionregistrationv1.MutatingWebhook
	Validating []admissionregistrationv1.ValidatingWebhook
}

// registration reads both configurations. One that is not there has no webhooks.
func (w *world) registration(ctx context.Context) (registered, error) {
	api := w.API.AdmissionregistrationV1()
	mutating, err1 := api.MutatingWebhookConfigurations().Get(ctx, workload.ConfigurationName, metav1.GetOptions{})
	validating, err2 := api.ValidatingWebhookConfigurations().Get(ctx, workload.ConfigurationName, metav1.GetOptions{})
	err := errors.Join(workload.Ignore(err1, apierrors.IsNotFound), workload.Ignore(err2, apierrors.IsNotFound))
	return registered{mutating.Webhooks, validating.Webhooks}, err
}

// awaitRegistered returns both configurations once each has its one webhook. While kube-apiserver is
// asked to prove that it reaches the webhook, the mutating one has a second, and the webhook of each
// leaves out the probe.
func (w *world) awaitRegistered(t *testing.T) (state registered) {
	t.Helper()
	leavesOutProbe := func(c admissionregistrationv1.MatchCondition) bool { return c.Name == "except-the-probe" }
	testcluster.Poll(t, "await the registration", func() (err error) {
		state, err = w.registration(t.Context())
		switch {
		case err != nil:
			return err
		case len(state.Mutating) != 1 || len(state.Validating) != 1:
			return fmt.Errorf("the configurations have %d and %d webhooks, want one each", len(state.Mutating), len(state.Validating))
		case slices.ContainsFunc(state.Validating[0].MatchConditions, leavesOutProbe):
			return errors.New("the validating webhook leaves out the probe")
		}
		return nil
	})
	return state
}
