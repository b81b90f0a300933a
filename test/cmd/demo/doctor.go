// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sa-controller-manager/manifests"

	"sa-controller-manager/test/await"
)

const (
	// lostBinding lets the manager publish the root CA. The manager of the demonstration is an
	// administrator and does not miss it, as one with its own identity would.
	lostBinding = manifests.User + ":root-ca"
	// frozen is a token Secret that no controller can fill.
	frozen = "frozen"
)

// doctorSteps are about finding faults.
func (d *tokens) doctorSteps() []step {
	return []step{
		{
			"doctor finds three planted faults and what auto has left",
			"a finding with a remedy for each, and no other", d.doctorFindsFaults,
		},
		{
			"They are repaired, and doctor finds nothing",
			"exit code 0 and no finding", d.doctorFindsNothing,
		},
	}
}

// finding is one finding in the JSON output of doctor.
type finding struct {
	Check, Code, Message, Remedy string
	Objects                      []string
}

// doctorFindsFaults plants two faults. Two more are there already: the Pod that was created while
// the webhook was unregistered, and the token Secrets that earlier managers have made with
// --token-secrets=auto.
func (d *tokens) doctorFindsFaults(ctx context.Context) error {
	if err := errors.Join(d.registerWebhook(ctx), d.applyPermissions(ctx)); err != nil {
		return err
	}
	if err := d.client.RbacV1().ClusterRoleBindings().Delete(ctx, lostBinding, metav1.DeleteOptions{}); err != nil {
		return err
	}
	d.Notef("planted", "pod %s/%s, created while the webhook was unregistered", namespace, d.missedPod)
	d.Notef("planted", "clusterrolebinding %s is deleted", lostBinding)
	if err := d.createTokenSecret(ctx, namespace, frozen, account, true); err != nil {
		return err
	}
	d.Notef("planted", "secret %s/%s, empty and immutable", namespace, frozen)
	findings, err := d.awaitFindings(ctx, 4)
	if err != nil {
		return err
	}
	for i, want := range []finding{
		{Code: "permissions-missing"},
		{Code: "secret-immutable", Objects: []string{namespace + "/" + frozen}},
		{Code: "secrets-auto-created", Objects: []string{namespace + "/default-token-"}},
		{Code: "pods-missed", Objects: []string{namespace + "/" + d.missedPod}},
	} {
		got, named := findings[i], strings.Join(findings[i].Objects, " ")
		missing := slices.ContainsFunc(want.Objects, func(object string) bool { return !strings.Contains(named, object) })
		if got.Code != want.Code || missing || got.Remedy == "" {
			return fmt.Errorf("%+v instead of %+v", got, want)
		}
		d.Notef("found", "%s: %s", got.Check, got.Message)
		d.Notef("remedy", "%s", got.Remedy)
	}
	return nil
}

// doctorFindsNothing applies the remedies that doctor has named.
func (d *tokens) doctorFindsNothing(ctx context.Context) error {
	core, now := d.client.CoreV1(), int64(0) // no kubelet is there to end the Pod
	if err := errors.Join(
		d.applyPermissions(ctx),
		core.Secrets(namespace).Delete(ctx, frozen, metav1.DeleteOptions{}),
		core.Pods(namespace).Delete(ctx, d.missedPod, metav1.DeleteOptions{GracePeriodSeconds: &now}),
	); err != nil {
		return err
	}
	d.Notef("repaired", "manifests/permissions are applied again")
	d.Notef("repaired", "secret %s and pod %s are deleted", frozen, d.missedPod)
	namespaces, err := core.Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, in := range namespaces.Items {
		err := core.Secrets(in.Name).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "sa-controller-manager/auto-created"})
		if err != nil {
			return err
		}
	}
	d.Notef("repaired", "the token Secrets that --token-secrets=auto has made are deleted")
	if _, err := d.awaitFindings(ctx, 0); err != nil {
		return err
	}
	d.Notef("command", "sa-controller-manager doctor")
	output, err := d.doctor(ctx, "table")
	d.Notef("output", "%s", strings.TrimSpace(string(output)))
	return err
}

// registerWebhook undoes webhookIsUnregistered and waits until Pods get their account again.
func (d *tokens) registerWebhook(ctx context.Context) error {
	if _, err := d.command(ctx, "webhook register", d.kubeconfig()); err != nil {
		return err
	}
	return await.Poll(ctx, func(ctx context.Context) error {
		pod, err := d.client.CoreV1().Pods(namespace).Create(ctx, newPod("trial"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && pod.Spec.ServiceAccountName != account {
			err = errors.New("a Pod gets no serviceaccount")
		}
		return err
	})
}

// applyPermissions does what "kubectl apply -k manifests/permissions" does.
func (d *tokens) applyPermissions(ctx context.Context) error {
	objects, err := manifests.Permissions()
	if err != nil {
		return err
	}
	for _, object := range objects {
		err := d.client.RbacV1().RESTClient().Patch(types.ApplyYAMLPatchType).AbsPath(object.Path()).Body(object.YAML).
			Param("fieldManager", "demo").Param("force", "true").Do(ctx).Error()
		if err != nil {
			return fmt.Errorf("apply %s: %w", object, err)
		}
	}
	return nil
}

// awaitFindings returns the findings of doctor once there are as many as wanted. A Secret counts
// only when it is older than a second, and the authorizer of kube-apiserver learns of roles through
// its own watch.
func (d *tokens) awaitFindings(ctx context.Context, want int) (findings []finding, err error) {
	err = await.Poll(ctx, func(ctx context.Context) error {
		output, err := d.doctor(ctx, "json")
		var report struct{ Findings []finding }
		if parseErr := json.Unmarshal(output, &report); parseErr != nil {
			return fmt.Errorf("the output of doctor: %w\n%s", errors.Join(parseErr, err), output)
		}
		findings = report.Findings
		if len(findings) != want || (err != nil) != (want > 0) {
			return fmt.Errorf("%d findings: %+v, exit code %w", len(findings), findings, orNil(err))
		}
		return nil
	})
	return findings, err
}

// doctor runs the command. The error is not nil if it does not end with exit code 0.
func (d *tokens) doctor(ctx context.Context, format string) ([]byte, error) {
	return d.output(ctx, "doctor", d.kubeconfig(), "--grace=1s", "--output="+format,
		"--root-ca-file="+d.cluster.CAFile(), "--service-account-private-key-file="+d.cluster.SigningKeyFile())
}
