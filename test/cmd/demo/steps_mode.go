// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/test/await"
)

// configurationName is that of both webhook configurations.
const configurationName = "00-sa-controller-manager"

// mode is one of the three coherent ways to give Pods their tokens.
type mode struct {
	namespace    string // what its Pods are created in
	tokenSecrets string
	podToken     string
	// volume checks what the Pod has got.
	volume func(ctx context.Context, s *story, pod *corev1.Pod) (corev1.Volume, error)
	// secrets checks what the account has got.
	secrets func(ctx context.Context, s *story, namespace string) error
}

func kubernetes117() mode {
	return mode{
		namespace: "like-1-17", tokenSecrets: "auto", podToken: "secret",
		volume: secretVolume, secrets: accountHasSecret,
	}
}

func kubernetes122() mode {
	return mode{
		namespace: "like-1-22", tokenSecrets: "auto", podToken: "projected",
		volume: projectedVolume, secrets: accountHasSecret,
	}
}

func kubernetesToday() mode {
	return mode{
		namespace: "like-today", tokenSecrets: "manual", podToken: "projected",
		volume: projectedVolume, secrets: namespaceHasNoSecret,
	}
}

// flags are those of a manager in that mode. Nobody waits for a webhook that drains
// here, so it need not.
func (m mode) flags(webhookPort int) []string {
	return []string{
		"--token-secrets=" + m.tokenSecrets, "--pod-token=" + m.podToken,
		"--webhook-port=" + strconv.Itoa(webhookPort), "--webhook-registration=url",
		"--webhook-drain-delay=0s", "--leader-elect=true",
	}
}

// run restarts the manager in that mode and creates a Pod in the same instant as its
// namespace: its account does not exist then.
func (m mode) run(ctx context.Context, s *story) error {
	if err := s.restartManager(ctx, m.flags(s.webhookPort)); err != nil {
		return err
	}
	pod, err := s.createNamespaceAndPod(ctx, m.namespace)
	if err != nil {
		return err
	}
	s.Notef("created", "namespace %[1]s and in the same instant pod %[1]s/%[2]s: admitted", m.namespace, pod.Name)
	if pod.Spec.ServiceAccountName != account {
		return fmt.Errorf("serviceaccount %q in the pod", pod.Spec.ServiceAccountName)
	}
	s.Notef("observed", "it runs as serviceaccount %s/%s", m.namespace, account)
	volume, err := m.volume(ctx, s, pod)
	if err != nil {
		return err
	}
	if err := checkMounts(pod, volume.Name); err != nil {
		return err
	}
	s.Notef("volume", "%s", indented(volume))
	s.Notef("mounted", "read-only at %s in every container", mountPath)
	return m.secrets(ctx, s, m.namespace)
}

// restartManager replaces the manager and waits until its webhook is registered, which
// the leader does once kube-apiserver has proved that it reaches it.
func (s *story) restartManager(ctx context.Context, flags []string) error {
	if _, err := s.manager.Stop(); err != nil {
		return err
	}
	if err := s.startManager(ctx, flags); err != nil {
		return err
	}
	s.Notef("started", "sa-controller-manager %s\n%s", strings.Join(flags[:2], " "), strings.Join(flags[2:4], " "))
	if err := s.manager.AwaitLog(ctx, `state="registered"`); err != nil {
		return err
	}
	s.Notef("observed", "kube-apiserver reaches the webhook, and %s is registered", configurationName)
	return nil
}

// accountHasSecret is true for --token-secrets=auto.
func accountHasSecret(ctx context.Context, s *story, namespace string) error {
	var secret string
	_, err := await.ServiceAccounts(ctx, s.client, namespace, func(accounts []*corev1.ServiceAccount) error {
		object, ok := await.Find(accounts, account)
		if !ok || len(object.Secrets) != 1 {
			return fmt.Errorf("serviceaccount %s does not list exactly one secret", account)
		}
		secret = object.Secrets[0].Name
		return nil
	})
	if err != nil {
		return err
	}
	s.Notef("observed", "serviceaccount %s/%s has secret %s", namespace, account, secret)
	return nil
}

// namespaceHasNoSecret is true for --token-secrets=manual. The account is there already.
func namespaceHasNoSecret(ctx context.Context, s *story, namespace string) error {
	list, err := s.client.CoreV1().Secrets(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list the secrets: %w", err)
	}
	if len(list.Items) > 0 {
		return errors.New("secret " + list.Items[0].Name + " in the namespace")
	}
	s.Notef("observed", "no secret in namespace %s", namespace)
	return nil
}
