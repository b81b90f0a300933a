// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/test/faults/checker"
	"sa-controller-manager/test/faults/workload"
)

// tamper does something to the registration and awaits that it is repaired, and that also holds.
func (w *World) tamper(ctx context.Context, kind checker.Kind, limit time.Duration, do func(context.Context) error,
	also func(registered) error) (func(context.Context) error, error) {
	before, err := w.awaitRegistered(ctx)
	if err != nil {
		return nil, err
	}
	if err := do(ctx); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return w.awaitRepair(ctx, kind, before, limit, also) }, nil
}

// tampers does what takes nothing but a World.
func tampers(do func(*World, context.Context) error) Inject {
	return func(ctx context.Context, w *World, fault Planned) (func(context.Context) error, error) {
		return w.tamper(ctx, fault.Kind, repairLimit, func(ctx context.Context) error { return do(w, ctx) }, nothing)
	}
}

func nothing(registered) error { return nil }

func (w *World) dropMutating(ctx context.Context) error {
	return w.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(ctx, workload.ConfigurationName, metav1.DeleteOptions{})
}

func (w *World) dropValidating(ctx context.Context) error {
	return w.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(ctx, workload.ConfigurationName, metav1.DeleteOptions{})
}

// configuration is one of the two.
type configuration string

const (
	mutating   configuration = "mutating"
	validating configuration = "validating"
)

// editBundle has kube-apiserver trust another CA.
func editBundle(which configuration) Inject {
	return func(ctx context.Context, w *World, fault Planned) (func(context.Context) error, error) {
		stranger, err := os.ReadFile(w.cluster.ClientCAFile())
		if err != nil {
			return nil, err
		}
		return w.tamper(ctx, fault.Kind, repairLimit, func(ctx context.Context) error {
			return w.patch(ctx, which, "/webhooks/0/clientConfig/caBundle", stranger)
		}, func(now registered) error {
			for _, bundle := range now.bundles() {
				if strings.Contains(bundle, string(stranger)) {
					return errors.New("a caBundle still has the certificate that was planted")
				}
			}
			return nil
		})
	}
}

// editRules takes all Pods out.
func editRules(which configuration) Inject {
	return tampers(func(w *World, ctx context.Context) error { return w.patch(ctx, which, "/webhooks", []any{}) })
}

// edit is another value of a webhook's field.
type edit struct {
	path  string
	value any
}

// edits are those that a webhook can be spoiled with. Only mutating ones have the first.
func edits() []edit {
	nobody := map[string]any{"matchLabels": map[string]string{"nobody": "has-it"}}
	return []edit{
		{"reinvocationPolicy", "Never"},
		{"rules/0/operations", []string{"DELETE"}},
		{"clientConfig/url", "https://127.0.0.1:1/nowhere"},
		{"failurePolicy", "Ignore"},
		{"matchPolicy", "Exact"},
		{"namespaceSelector", nobody},
		{"objectSelector", nobody},
		{"sideEffects", "None"},
		{"timeoutSeconds", 1},
		{"admissionReviewVersions", []string{"v1"}},
		{"matchConditions", []map[string]string{{"name": "never", "expression": "false"}}},
	}
}

// editField edits one field of each configuration. Which ones depends on the seed: all at
// once would be repaired as soon as one of them is noticed.
func editField(ctx context.Context, w *World, fault Planned) (func(context.Context) error, error) {
	ofMutating, ofValidating := edits()[fault.Draw%len(edits())], edits()[1:][fault.Draw%len(edits()[1:])]
	w.log("%s: %s of the mutating configuration, %s of the validating one", fault.Kind, ofMutating.path, ofValidating.path)
	return w.tamper(ctx, fault.Kind, repairLimit, func(ctx context.Context) error {
		return errors.Join(
			w.patch(ctx, mutating, "/webhooks/0/"+ofMutating.path, ofMutating.value),
			w.patch(ctx, validating, "/webhooks/0/"+ofValidating.path, ofValidating.value),
		)
	}, nothing)
}

// patch puts a value in the place of the one at the path of a configuration.
func (w *World) patch(ctx context.Context, which configuration, path string, value any) error {
	body, err := json.Marshal([]map[string]any{{"op": "add", "path": path, "value": value}})
	if err != nil {
		return err
	}
	api := w.client.AdmissionregistrationV1()
	if which == mutating {
		_, err = api.MutatingWebhookConfigurations().Patch(ctx, workload.ConfigurationName, types.JSONPatchType, body, metav1.PatchOptions{})
	} else {
		_, err = api.ValidatingWebhookConfigurations().Patch(ctx, workload.ConfigurationName, types.JSONPatchType, body, metav1.PatchOptions{})
	}
	if err != nil {
		return fmt.Errorf("edit the %s configuration: %w", which, err)
	}
	return nil
}

// caSecretLimit is how long the serving CA may be away: kube-apiserver goes on to trust
// what its configurations hold.
const caSecretLimit = 10 * time.Second

func deleteCASecret(ctx context.Context, w *World, fault Planned) (func(context.Context) error, error) {
	secrets := w.client.CoreV1().Secrets(metav1.NamespaceSystem)
	old, err := secrets.Get(ctx, workload.CASecretName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get the serving CA: %w", err)
	}
	return w.tamper(ctx, fault.Kind, caSecretLimit, func(ctx context.Context) error {
		return secrets.Delete(ctx, workload.CASecretName, metav1.DeleteOptions{})
	}, func(registered) error {
		now, err := secrets.Get(ctx, workload.CASecretName, metav1.GetOptions{})
		if err == nil && now.UID == old.UID {
			err = errors.New("it is still the old Secret")
		}
		return err
	})
}
