// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sa-controller-manager/manifests"
)

const (
	// lostBinding lets the manager publish the root CA. The manager of the story is an
	// administrator and does not miss it; one in earnest would.
	lostBinding = manifests.User + ":root-ca"
	// frozen is a token Secret that nobody can fill.
	frozen = "frozen"
)

// finding is one that doctor prints for programs.
type finding struct {
	Check, Code, Message, Remedy string
	Objects                      []string
}

// doctorNamesFaults finds two that are there already: the Pod that was created while the webhook
// was taken out, and the token Secrets of --token-secrets=auto, which the steps before the last
// start have left.
func doctorNamesFaults(ctx context.Context, s *story) error {
	if err := s.registerWebhook(ctx); err != nil {
		return err
	}
	if err := s.applyPermissions(ctx); err != nil {
		return err
	}
	if err := s.client.RbacV1().ClusterRoleBindings().Delete(ctx, lostBinding, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete the binding: %w", err)
	}
	s.Notef("planted", "pod %s/%s, created while the webhook was out", namespace, s.untouched)
	s.Notef("planted", "clusterrolebinding %s is deleted", lostBinding)
	if err := s.createFrozenSecret(ctx); err != nil {
		return err
	}
	s.Notef("planted", "secret %s/%s, empty and immutable", namespace, frozen)
	// The Secret has to be older than a second to count.
	findings, err := s.awaitFindings(ctx, 4)
	if err != nil {
		return err
	}
	for i, want := range []finding{
		{Code: "permissions-missing"},
		{Code: "secret-immutable", Objects: []string{namespace + "/" + frozen}},
		{Code: "secrets-auto-created", Objects: []string{namespace + "/default-token-"}},
		{Code: "pods-missed", Objects: []string{namespace + "/" + s.untouched}},
	} {
		if err := findings[i].is(want); err != nil {
			return err
		}
		s.Notef("found", "%s: %s", findings[i].Check, findings[i].Message)
		s.Notef("remedy", "%s", findings[i].Remedy)
	}
	return nil
}

// is wants a finding of that code with these objects, and a remedy.
func (f finding) is(want finding) error {
	named := strings.Join(f.Objects, " ")
	missing := slices.ContainsFunc(want.Objects, func(object string) bool { return !strings.Contains(named, object) })
	if f.Code != want.Code || missing || f.Remedy == "" {
		return fmt.Errorf("%+v instead of %+v", f, want)
	}
	return nil
}

// doctorFindsNothing does what doctor said before.
func doctorFindsNothing(ctx context.Context, s *story) error {
	if err := s.applyPermissions(ctx); err != nil {
		return err
	}
	s.Notef("repaired", "manifests/permissions are applied again")
	if err := s.client.CoreV1().Secrets(namespace).Delete(ctx, frozen, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete the secret: %w", err)
	}
	now := int64(0) // no kubelet is there to end it
	if err := s.client.CoreV1().Pods(namespace).Delete(ctx, s.untouched, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		return fmt.Errorf("delete the pod: %w", err)
	}
	s.Notef("repaired", "secret %s and pod %s are deleted", frozen, s.untouched)
	namespaces, err := s.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list the namespaces: %w", err)
	}
	for _, in := range namespaces.Items {
		err := s.client.CoreV1().Secrets(in.Name).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "sa-controller-manager/auto-created"})
		if err != nil {
			return fmt.Errorf("delete the auto-created secrets of namespace %s: %w", in.Name, err)
		}
	}
	s.Notef("repaired", "the token Secrets that --token-secrets=auto has made are deleted")
	if _, err := s.awaitFindings(ctx, 0); err != nil {
		return err
	}
	output, err := s.doctor(ctx, "table")
	if err != nil {
		return fmt.Errorf("exit code other than 0: %w\n%s", err, output)
	}
	s.Notef("command", "sa-controller-manager doctor")
	s.Notef("output", "%s", strings.TrimSpace(string(output)))
	return nil
}

// registerWebhook takes back what the step before did, and waits until Pods get their
// account again.
func (s *story) registerWebhook(ctx context.Context) error {
	command := exec.CommandContext(ctx, s.binary.Path, "webhook", "register", "--kubeconfig="+s.cluster.Kubeconfig())
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("sa-controller-manager webhook register: %w\n%s", err, output)
	}
	s.Notef("command", "sa-controller-manager webhook register")
	for {
		pod, err := s.client.CoreV1().Pods(namespace).Create(ctx, newPod("trial"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return fmt.Errorf("create a pod with dryRun: %w", err)
		}
		if pod.Spec.ServiceAccountName == account {
			return nil
		}
	}
}

// applyPermissions is "kubectl apply -k manifests/permissions".
func (s *story) applyPermissions(ctx context.Context) error {
	objects, err := manifests.Permissions()
	if err != nil {
		return err
	}
	for _, object := range objects {
		err := s.client.RbacV1().RESTClient().Patch(types.ApplyYAMLPatchType).AbsPath(object.Path()).Body(object.YAML).
			Param("fieldManager", "demo").Param("force", "true").Do(ctx).Error()
		if err != nil {
			return fmt.Errorf("apply %s: %w", object, err)
		}
	}
	return nil
}

func (s *story) createFrozenSecret(ctx context.Context) error {
	yes := true
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: frozen, Annotations: map[string]string{corev1.ServiceAccountNameKey: account}},
		Type:       corev1.SecretTypeServiceAccountToken,
		Immutable:  &yes,
	}
	if _, err := s.client.CoreV1().Secrets(namespace).Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create the secret: %w", err)
	}
	return nil
}

// awaitFindings asks until there are as many as wanted: what is young does not count yet,
// and kube-apiserver's authorizer learns of roles through a watch of its own.
func (s *story) awaitFindings(ctx context.Context, want int) ([]finding, error) {
	for {
		output, err := s.doctor(ctx, "json")
		var report struct{ Findings []finding }
		if parseErr := json.Unmarshal(output, &report); parseErr != nil {
			return nil, fmt.Errorf("the output of doctor: %w\n%s", errors.Join(parseErr, err), output)
		}
		if len(report.Findings) == want && (err != nil) == (want > 0) {
			return report.Findings, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%w: %d findings: %+v", context.Cause(ctx), len(report.Findings), report.Findings)
		}
	}
}

// doctor runs the command. The error is an exec.ExitError if it does not end with 0.
func (s *story) doctor(ctx context.Context, format string) ([]byte, error) {
	return exec.CommandContext(ctx, s.binary.Path, "doctor", "--kubeconfig="+s.cluster.Kubeconfig(), "--grace=1s", "--output="+format,
		"--root-ca-file="+s.cluster.CAFile(), "--service-account-private-key-file="+s.cluster.SigningKeyFile()).Output()
}
