// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/admission/podpolicy"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/traffic"
)

func manifestOf(name string) string { return "/etc/kubernetes/manifests/" + name + ".yaml" }

// manifests are those of the two components that a takeover changes.
func (n *node) manifests(t *testing.T) map[string]string {
	t.Helper()
	manifests := map[string]string{}
	for _, name := range []string{"kube-apiserver", "kube-controller-manager"} {
		manifests[name] = string(n.read(t, manifestOf(name)))
	}
	return manifests
}

// weRun: a new namespace has its account, a Pod there its token, and it is us who sign.
func weRun(t *testing.T, n *node) {
	t.Helper()
	by := newcomer(t, n)
	testutil.Expect(t, by == "sa-controller-manager", "a token Secret was filled by %q", by)
}

// weAreGone: the same, by the two others; and nothing of ours is left that acts.
func weAreGone(t *testing.T, n *node) {
	t.Helper()
	by := newcomer(t, n)
	testutil.Expect(t, by == "kube-controller-manager", "a token Secret was filled by %q", by)
	api := n.client.AdmissionregistrationV1()
	if _, err := api.MutatingWebhookConfigurations().Get(t.Context(), "00-sa-controller-manager",
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the mutating configuration: %v", err)
	}
	if _, err := api.ValidatingWebhookConfigurations().Get(t.Context(), "00-sa-controller-manager",
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the validating configuration: %v", err)
	}
	for _, policy := range []podpolicy.Policy{podpolicy.Refusal, podpolicy.Completion} {
		exists, _, err := policy.Problem(t.Context(), n.client)
		testutil.Expect(t, !exists && err == nil, "a policy for Pods is there, %v", err)
	}
	for _, name := range []string{manifestOf("sa-controller-manager"),
		"/etc/kubernetes/sa-controller-manager-patches/kube-apiserver-sa-controller-manager+json.yaml"} {
		testutil.Expect(t, !n.exists(name), "%s is still there", name)
	}
}

// newcomer makes a namespace, a Pod and a token Secret in it, and says who has filled
// the Secret.
func newcomer(t *testing.T, n *node) string {
	t.Helper()
	namespace := testutil.Get(n.client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{}))(t)
	awaitDefaultAccount(t, n, namespace.Name)
	pod, err := n.client.CoreV1().Pods(namespace.Name).Create(t.Context(), traffic.Pod(), metav1.CreateOptions{})
	if err == nil {
		err = traffic.Complete(pod)
	}
	testutil.Expect(t, err == nil, "a Pod in %s: %v", namespace.Name, err)
	secrets := n.client.CoreV1().Secrets(namespace.Name)
	secret, err := secrets.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "token", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}},
		Type:       corev1.SecretTypeServiceAccountToken,
	}, metav1.CreateOptions{FieldManager: "test"})
	testutil.Must(t, err)
	poll(t, "a token Secret is filled", func(ctx context.Context) error {
		if secret, err = secrets.Get(ctx, "token", metav1.GetOptions{}); err == nil && len(secret.Data["token"]) == 0 {
			err = errors.New("it is empty")
		}
		return err
	})
	var by []string
	for _, entry := range secret.ManagedFields {
		if entry.Manager != "test" {
			by = append(by, entry.Manager)
		}
	}
	return strings.Join(by, ", ")
}

func awaitDefaultAccount(t *testing.T, n *node, namespace string) {
	t.Helper()
	poll(t, "the default account of "+namespace, func(ctx context.Context) error {
		_, err := n.client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}
