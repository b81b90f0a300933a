// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clientv1 "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	"k8s.io/client-go/rest"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/traffic"
)

// timeout limits every wait. It is long because only a failing test reaches it.
const timeout = 3 * time.Minute

// What the product calls its own.
const (
	configurationName = "00-sa-controller-manager"
	caSecretName      = "sa-controller-manager-webhook-ca"
)

// cluster is the running control plane.
type cluster struct {
	*devcluster.Cluster

	client kubernetes.Interface
	idle   func() // closes connections
}

func (c *cluster) mutating() clientv1.MutatingWebhookConfigurationInterface {
	return c.client.AdmissionregistrationV1().MutatingWebhookConfigurations()
}

func (c *cluster) validating() clientv1.ValidatingWebhookConfigurationInterface {
	return c.client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
}

// controlPlane is the one that all tests share. A test asks for it before it starts a
// manager: then its registration goes after its last manager has ended.
func controlPlane(t *testing.T) *cluster {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.cluster == nil {
		started, err := devcluster.Start(context.Background(), devcluster.Options{APIServerFlags: map[string][]string{
			"enable-aggregator-routing": {"true"}, // it looks the endpoints of a Service up itself
		}})
		testutil.Must(t, err)
		shared.cluster = &cluster{Cluster: started}
		shared.cluster.connect(t)
	}
	c := shared.cluster
	t.Cleanup(func() { c.clear(t) })
	return c
}

func (c *cluster) connect(t *testing.T) {
	t.Helper()
	config := c.Config()
	config.WarningHandler = rest.NoWarnings{} // some objects here are old-fashioned on purpose
	transport, err := rest.HTTPClientFor(config)
	testutil.Must(t, err)
	if c.client, err = kubernetes.NewForConfigAndClient(config, transport); err != nil {
		t.Fatalf("make an admin client: %v", err)
	}
	c.idle = transport.CloseIdleConnections
}

// clear takes out what managers have registered, so that the next test finds a cluster
// that has never seen one.
func (c *cluster) clear(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), timeout)
	defer cancel()
	err := errors.Join(
		ignoreNotFound(c.mutating().Delete(ctx, configurationName, metav1.DeleteOptions{})),
		ignoreNotFound(c.validating().Delete(ctx, configurationName, metav1.DeleteOptions{})),
		ignoreNotFound(c.client.CoreV1().Secrets(metav1.NamespaceSystem).Delete(ctx, caSecretName, metav1.DeleteOptions{})),
	)
	if err != nil {
		t.Errorf("take out the registration: %v", err)
	}
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// namespace makes a namespace for one test. It stays.
func (c *cluster) namespace(t *testing.T) string {
	t.Helper()
	namespace, err := c.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
	}, metav1.CreateOptions{})
	testutil.Must(t, err)
	return namespace.Name
}

// limited bounds a wait.
func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), timeout, errors.New("the test timed out"))
	t.Cleanup(cancel)
	return ctx
}

// poll asks until ok is satisfied. It is for what nothing announces.
func poll(t *testing.T, what string, ok func(context.Context) error) {
	t.Helper()
	if err := await.Poll(limited(t), ok); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// traffic creates Pods in the namespace until the test ends, or before with Finish.
func (c *cluster) traffic(t *testing.T, namespace string) *traffic.Traffic {
	t.Helper()
	return traffic.Start(t, func(ctx context.Context) (*corev1.Pod, error) {
		return c.client.CoreV1().Pods(namespace).Create(ctx, newPod(), metav1.CreateOptions{})
	})
}
