// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/devcluster"
)

// formerEnv names the binary of the version to come from and to go back to.
const formerEnv = "SACM_FORMER_BINARY"

const (
	caSecretName    = "sa-controller-manager-webhook-ca"
	rootCAStateName = "sa-controller-manager-root-ca"
)

// TestUpgradeAndDowngrade goes from the former version to this one and back, one of two
// replicas after the other, in the middle of an overlap of root CAs and while a client
// creates Pods. What is kept in the cluster is neither lost nor written without need.
func TestUpgradeAndDowngrade(t *testing.T) {
	path := os.Getenv(formerEnv)
	if path == "" {
		t.Skip("make test-upgrade builds the former version and names it in " + formerEnv)
	}
	former, current := devcluster.Binary{Path: path}, currentBinary(t)
	s := newService(t, start(t, plugin))
	s.replace(t, 0, former)
	s.replace(t, 1, former)
	s.cluster.awaitBound(t)
	s.beginOverlap(t)
	secret := s.handmadeToken(t)

	load := startTraffic(t, s.cluster.client)
	begun := s.kept(t)
	for _, step := range []struct {
		name   string
		binary devcluster.Binary
	}{{"upgrade", current}, {"downgrade", former}, {"upgrade again", current}} {
		for i := range s.replicas {
			s.replace(t, i, step.binary)
		}
		s.awaitWork(t, step.name)
		lasts(t, 3*time.Second)
		testutil.Check(t, "what is kept after the "+step.name, begun, s.kept(t))
		if got := s.handmadeToken(t); got != secret {
			t.Errorf("after the %s the token of a Secret is another", step.name)
		}
	}
	load.Unharmed(t)
	for _, one := range s.replicas {
		one.stop(t)
	}
}

// kept is what versions hand on to one another, and how often it was written: a
// resourceVersion that stays means that nobody wrote.
func (s *service) kept(t *testing.T) map[string]string {
	t.Helper()
	ctx, c := t.Context(), s.cluster.client
	kept := map[string]string{}
	note := func(name, version string, content any, err error) {
		testutil.Must(t, err)
		encoded, err := json.Marshal(content)
		testutil.Must(t, err)
		kept[name] = version + " " + string(encoded)
	}
	mutating, err := c.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, configurationName, metav1.GetOptions{})
	note("mutating", mutating.ResourceVersion, mutating.Webhooks, err)
	validating, err := c.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, configurationName, metav1.GetOptions{})
	note("validating", validating.ResourceVersion, validating.Webhooks, err)
	ca, err := c.CoreV1().Secrets(metav1.NamespaceSystem).Get(ctx, caSecretName, metav1.GetOptions{})
	note("serving CA", ca.ResourceVersion, ca.Data, err)
	state, err := c.CoreV1().Secrets(metav1.NamespaceSystem).Get(ctx, rootCAStateName, metav1.GetOptions{})
	note("root CA state", state.ResourceVersion, state.Data, err)
	published, err := c.CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
	note("root CA", published.ResourceVersion, published.Data, err)
	return kept
}

// beginOverlap changes the root CA file.
func (s *service) beginOverlap(t *testing.T) {
	t.Helper()
	old, err := os.ReadFile(s.cluster.CAFile())
	testutil.Must(t, err)
	other, err := os.ReadFile(s.cluster.ClientCAFile()) // as good as any
	testutil.Must(t, err)
	testutil.Must(t, os.WriteFile(s.rootCA, other, 0o600))
	poll(t, "await both root CAs", func(ctx context.Context) error {
		published, err := s.cluster.client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, one := range [][]byte{old, other} {
			if !strings.Contains(published.Data["ca.crt"], strings.TrimSpace(string(one))) {
				return errors.New("one is missing")
			}
		}
		return nil
	})
}

// handmadeToken is the token of a Secret that a user has created, once it has one.
func (s *service) handmadeToken(t *testing.T) string {
	t.Helper()
	secrets := s.cluster.client.CoreV1().Secrets(metav1.NamespaceDefault)
	_, err := secrets.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "handmade", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}},
		Type:       corev1.SecretTypeServiceAccountToken,
	}, metav1.CreateOptions{})
	if err != nil && !strings.Contains(err.Error(), "already exists") {
		t.Fatal(err)
	}
	var token string
	poll(t, "await a token", func(ctx context.Context) error {
		secret, err := secrets.Get(ctx, "handmade", metav1.GetOptions{})
		if token = string(secret.Data["token"]); err == nil && token == "" {
			err = errors.New("there is none")
		}
		return err
	})
	return token
}

// awaitWork waits until some replica leads and does a controller's work.
func (s *service) awaitWork(t *testing.T, name string) {
	t.Helper()
	client := s.cluster.client
	namespace, err := client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "after-"}}, metav1.CreateOptions{})
	testutil.Must(t, err)
	poll(t, "await a leader after the "+name, func(ctx context.Context) error {
		_, err := client.CoreV1().ConfigMaps(namespace.Name).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		return err
	})
}

// rootCAFile is a copy that a test may change.
func rootCAFile(t *testing.T, c *cluster) string {
	t.Helper()
	content, err := os.ReadFile(c.CAFile())
	testutil.Must(t, err)
	return testutil.WriteFile(t, "root-ca.crt", content)
}
