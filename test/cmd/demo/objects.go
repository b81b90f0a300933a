// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/must"
)

func (s *story) createNamespace(ctx context.Context, name string) {
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := s.client.CoreV1().Namespaces().Create(ctx, object, metav1.CreateOptions{})
	must.Do(err)
}

// createTokenSecret creates what a user writes to get a token that does not expire.
func (s *story) createTokenSecret(ctx context.Context, namespace, name, account string) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{corev1.ServiceAccountNameKey: account}},
		Type:       corev1.SecretTypeServiceAccountToken,
	}
	_, err := s.client.CoreV1().Secrets(namespace).Create(ctx, secret, metav1.CreateOptions{})
	must.Do(err)
}

// awaitFilled returns a Secret once it has a token.
func (s *story) awaitFilled(ctx context.Context, namespace, name string) (secret *corev1.Secret) {
	must.Get(await.Secrets(ctx, s.client, namespace, func(secrets []*corev1.Secret) error {
		found, ok := await.Find(secrets, name)
		if !ok || tokenOf(found) == "" {
			return fmt.Errorf("secret %s has no token", name)
		}
		secret = found
		return nil
	}))
	return secret
}

// awaitTokenSecret returns the token Secret of an account once the account lists it, and no other
// one and not the former one, and it has a token.
func (s *story) awaitTokenSecret(ctx context.Context, namespace, account, former string) *corev1.Secret {
	name := ""
	must.Get(await.ServiceAccounts(ctx, s.client, namespace, func(accounts []*corev1.ServiceAccount) error {
		found, ok := await.Find(accounts, account)
		if !ok || len(found.Secrets) != 1 || found.Secrets[0].Name == former {
			return fmt.Errorf("serviceaccount %s does not list exactly one secret, another one than %q", account, former)
		}
		name = found.Secrets[0].Name
		return nil
	}))
	return s.awaitFilled(ctx, namespace, name)
}

func tokenOf(secret *corev1.Secret) string { return string(secret.Data[corev1.ServiceAccountTokenKey]) }

// checkContent verifies all of a token Secret but the token itself.
func (s *story) checkContent(secret *corev1.Secret, uid types.UID) {
	rootCA := must.Get(os.ReadFile(s.cluster.CAFile()))
	want := map[string][]byte{
		corev1.ServiceAccountTokenKey: []byte(tokenOf(secret)), corev1.ServiceAccountRootCAKey: rootCA,
		corev1.ServiceAccountNamespaceKey: []byte(secret.Namespace),
	}
	if got := secret.Annotations[corev1.ServiceAccountUIDKey]; !maps.EqualFunc(secret.Data, want, bytes.Equal) || got != string(uid) {
		must.Do(fmt.Errorf("secret %s has other data than token, root CA and namespace, or UID %q, not %q", secret.Name, got, uid))
	}
	s.notef("data", "token, ca.crt (the root CA) and namespace are in place, the account's UID is annotated")
}

// decode splits a compact JWT (RFC 7519): three base64url segments without padding, the first
// two of them JSON objects. It verifies nothing. Errors do not quote the token.
func decode(token string) (header, claims map[string]any, err error) {
	segments := strings.Split(token, ".")
	if len(segments) != 3 {
		return nil, nil, fmt.Errorf("a token of %d segments", len(segments))
	}
	for i, into := range []*map[string]any{&header, &claims} {
		data, err := base64.RawURLEncoding.DecodeString(segments[i])
		if err != nil || json.Unmarshal(data, into) != nil {
			return nil, nil, errors.New("a token whose header or claims are not JSON in base64url")
		}
	}
	return header, claims, nil
}

// indented renders an object as JSON.
func indented(object any) string {
	data, err := json.MarshalIndent(object, "", "  ")
	if err != nil {
		return fmt.Sprintf("%v", object)
	}
	return string(data)
}

const (
	// configurationName is the name of both webhook configurations.
	configurationName = "00-sa-controller-manager"
	// mountPath is where every client library expects its token.
	mountPath = "/var/run/secrets/kubernetes.io/serviceaccount"
)

// mode is one of the three coherent ways to give Pods their tokens.
type mode struct {
	namespace    string // of its Pod
	tokenSecrets string
	podToken     string
}

// podSteps are about the tokens of Pods.
func (d *tokens) podSteps() []step {
	return []step{
		{"Pods as in Kubernetes 1.17: token Secrets for all, mounted", d.podsInMode(mode{"like-1-17", "auto", "secret"})},
		{"Pods as in Kubernetes 1.22: token Secrets for all, Pods do not need them", d.podsInMode(mode{"like-1-22", "auto", "projected"})},
		{
			"Pods as in Kubernetes today: no token Secrets but those that users create",
			d.podsInMode(mode{"like-today", "manual", "projected"}),
		},
		{"A Pod of an account that does not exist is refused", d.unknownAccountIsRefused},
		{"The webhook can be unregistered at any time", d.webhookIsUnregistered},
	}
}

// podsInMode restarts the manager in a mode and creates a Pod immediately after its namespace,
// before the namespace has an account.
func (d *tokens) podsInMode(m mode) func(context.Context) {
	return func(ctx context.Context) {
		d.restartManager(ctx, m)
		d.createNamespace(ctx, m.namespace)
		pod := must.Get(d.client.CoreV1().Pods(m.namespace).Create(ctx, newPod("web"), metav1.CreateOptions{}))
		d.notef("created", "namespace %[1]s and immediately pod %[1]s/%[2]s: admitted", m.namespace, pod.Name)
		must.Not(pod.Spec.ServiceAccountName != account, "serviceaccount %q in the pod", pod.Spec.ServiceAccountName)
		d.notef("observed", "it runs as serviceaccount %s/%s", m.namespace, account)
		d.checkVolume(ctx, m, pod)
		d.notef("volume", "%s", indented(pod.Spec.Volumes[0]))
		d.notef("mounted", "read-only at %s in every container", mountPath)
		d.checkSecrets(ctx, m)
	}
}

// restartManager replaces the manager and waits until its webhook is registered. The leader
// registers it once kube-apiserver has proved that it reaches it.
func (d *tokens) restartManager(ctx context.Context, m mode) {
	must.Get(d.manager.Stop())
	mode := []string{"--token-secrets=" + m.tokenSecrets, "--pod-token=" + m.podToken}
	webhook := []string{"--webhook-port=" + strconv.Itoa(d.webhookPort), "--webhook-registration=url"}
	// No webhook call is lost here, so the drain delay only costs time.
	flags := append(append(mode, webhook...), "--webhook-drain-delay=0s", "--leader-elect=true")
	d.run(ctx, flags...)
	d.notef("started", "sa-controller-manager %s\n%s", strings.Join(mode, " "), strings.Join(webhook, " "))
	must.Do(d.manager.AwaitLog(ctx, `state="registered"`))
	d.notef("observed", "kube-apiserver reaches the webhook, and %s is registered", configurationName)
}

// checkVolume verifies that a Pod has one volume, of the kind that the mode says, and mounts it.
func (d *tokens) checkVolume(ctx context.Context, m mode, pod *corev1.Pod) {
	must.Not(len(pod.Spec.Volumes) != 1, "%d volumes in the pod", len(pod.Spec.Volumes))
	volume := pod.Spec.Volumes[0]
	want := corev1.VolumeMount{Name: volume.Name, MountPath: mountPath, ReadOnly: true}
	for _, container := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
		must.Not(!equality.Semantic.DeepEqual(container.VolumeMounts, []corev1.VolumeMount{want}),
			"container %s has other mounts than %s at %s", container.Name, volume.Name, mountPath)
	}
	if m.podToken == "projected" {
		must.Not(volume.Projected == nil || len(volume.Projected.Sources) != 3 || volume.Projected.Sources[0].ServiceAccountToken == nil,
			"the volume is not a projection of a token, the root CA and the namespace")
		return
	}
	must.Not(volume.Secret == nil, "the volume holds no secret")
	d.awaitFilled(ctx, pod.Namespace, volume.Secret.SecretName)
}

// checkSecrets verifies that the account has one token Secret with --token-secrets=auto, and that
// the namespace has no Secret with manual.
func (d *tokens) checkSecrets(ctx context.Context, m mode) {
	if m.tokenSecrets == "auto" {
		secret := d.awaitTokenSecret(ctx, m.namespace, account, "")
		d.notef("observed", "serviceaccount %s/%s has secret %s", m.namespace, account, secret.Name)
		return
	}
	list := must.Get(d.client.CoreV1().Secrets(m.namespace).List(ctx, metav1.ListOptions{}))
	if len(list.Items) > 0 {
		must.Do(errors.New("secret " + list.Items[0].Name + " in the namespace"))
	}
	d.notef("observed", "no secret in namespace %s", m.namespace)
}

func (d *tokens) unknownAccountIsRefused(ctx context.Context) {
	pod := newPod("stranger")
	pod.Spec.ServiceAccountName = "nobody"
	_, err := d.client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
	d.forbidden(err, `serviceaccount "nobody" not found`)
}

// webhookIsUnregistered leaves the manager running. kube-apiserver no longer calls it, as soon as
// it learns of the change through its own watch.
func (d *tokens) webhookIsUnregistered(ctx context.Context) {
	d.notef("command", "sa-controller-manager webhook unregister")
	output := must.Get(d.binary.Run(ctx, "webhook", "unregister", "--kubeconfig="+d.cluster.Kubeconfig()))
	d.notef("output", "%s", strings.TrimSpace(string(output)))
	must.Do(await.Poll(ctx, func(ctx context.Context) error {
		pod := newPod("")
		pod.GenerateName = "web-"
		pod, err := d.client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		if pod.Spec.ServiceAccountName != "" || len(pod.Spec.Volumes) > 0 {
			return fmt.Errorf("pod %s has a serviceaccount or a volume", pod.Name)
		}
		d.notef("created", "pod %s/%s, without serviceaccount and volumes", namespace, pod.Name)
		return nil
	}))
}

// newPod returns a Pod with an init container, because those get the token too.
func newPod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "prepare", Image: "busybox"}},
			Containers:     []corev1.Container{{Name: "web", Image: "nginx"}},
		},
	}
}
