// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sa-controller-manager/admission"
	"sa-controller-manager/admission/certs"
	"sa-controller-manager/admission/registration"

	"sa-controller-manager/test/devcluster"
)

// timeout limits every wait. Only a failing test reaches it.
const timeout = 3 * time.Minute

// cluster is shared: the tests run one after the other and clean up.
var cluster = sync.OnceValues(func() (*devcluster.Cluster, error) {
	return devcluster.Start(context.Background(), devcluster.Options{})
})

func TestMain(m *testing.M) {
	code := m.Run()
	if c, err := cluster(); err == nil {
		if err := errors.Join(c.Stop(), goleak.Find()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func connect(t *testing.T) kubernetes.Interface {
	t.Helper()
	c, err := cluster()
	if err != nil {
		t.Fatal(err)
	}
	config := c.Config()
	config.QPS, config.Burst = -1, 0
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// counter is a plugin that says yes and counts what it is asked, by path.
type counter struct {
	rules               []admission.Rule
	mutated, validated  atomic.Int64
	namesMu             sync.Mutex
	namesAdmit, namesOK map[string]bool
}

func newCounter(rules ...admission.Rule) *counter {
	return &counter{rules: rules, namesAdmit: map[string]bool{}, namesOK: map[string]bool{}}
}

func (c *counter) Rules() []admission.Rule   { return c.rules }
func (*counter) Ready(context.Context) error { return nil }

func (c *counter) Admit(_ context.Context, request *admission.Request, _ *admission.Response) error {
	c.mutated.Add(1)
	c.namesMu.Lock()
	defer c.namesMu.Unlock()
	c.namesAdmit[request.Resource.Resource+"/"+request.Name] = true
	return nil
}

func (c *counter) Validate(_ context.Context, request *admission.Request, _ *admission.Response) error {
	c.validated.Add(1)
	c.namesMu.Lock()
	defer c.namesMu.Unlock()
	c.namesOK[request.Resource.Resource+"/"+request.Name] = true
	return nil
}

func (c *counter) saw(what string) (mutate, validate bool) {
	c.namesMu.Lock()
	defer c.namesMu.Unlock()
	return c.namesAdmit[what], c.namesOK[what]
}

// replica is a webhook with its certificates and its registration.
type replica struct {
	certs     *certs.Managed
	registrar *registration.Registrar
	counter   *counter
}

// start runs a replica until the test ends. Without serving, nobody answers its port.
func start(t *testing.T, client kubernetes.Interface, serving bool, plugin *counter, change func(*registration.Spec)) *replica {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	spec := registration.Spec{
		Mode: registration.URL, Host: "127.0.0.1", Port: listener.Addr().(*net.TCPAddr).Port,
		FailurePolicy: admissionregistrationv1.Fail, Timeout: 10 * time.Second,
		MutatingRules: plugin.rules, ValidatingRules: plugin.rules,
		Own: []registration.Object{
			{Group: "coordination.k8s.io", Resource: "leases", Namespace: "kube-system", Name: "ours"},
			{Resource: "secrets", Namespace: certs.DefaultSecretNamespace, Name: certs.DefaultSecretName},
			{Resource: "namespaces", Name: "kube-system"},
		},
	}
	change(&spec)
	if err := spec.Validate(); err != nil {
		t.Fatal(err)
	}
	responder := &registration.ProbeResponder{}
	r := &replica{counter: plugin, certs: certs.NewManaged(certs.ManagedConfig{Client: client})}
	r.registrar = registration.New(registration.Config{
		Spec: spec, Client: client, ServingCA: r.certs, Responder: responder,
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	run := func(what func(context.Context) error) {
		running.Go(func() {
			if err := what(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	run(r.certs.Run)
	run(r.registrar.Run)
	run(r.registrar.Lead)
	if serving {
		server := admission.NewServer(admission.ServerConfig{
			Listener: listener,
			TLS:      &tls.Config{GetCertificate: r.certs.GetCertificate, MinVersion: tls.VersionTLS12},
			Webhook: admission.NewWebhook(admission.WebhookConfig{
				Chain: admission.Chain{{Name: "probe", Plugin: responder}, {Name: "counter", Plugin: plugin}},
			}),
		})
		run(server.Run)
	} else if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := registration.Unregister(context.Background(), client); err != nil {
			t.Error(err)
		}
		cancel()
		running.Wait()
		cleanUp(t, client)
	})
	return r
}

func cleanUp(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	ctx := context.Background()
	configurations := client.AdmissionregistrationV1()
	for _, err := range []error{
		configurations.MutatingWebhookConfigurations().Delete(ctx, registration.Name, metav1.DeleteOptions{}),
		configurations.ValidatingWebhookConfigurations().Delete(ctx, registration.Name, metav1.DeleteOptions{}),
		client.CoreV1().Secrets(certs.DefaultSecretNamespace).Delete(ctx, certs.DefaultSecretName, metav1.DeleteOptions{}),
	} {
		if err != nil {
			t.Error(err)
		}
	}
}

func awaitState(t *testing.T, r *replica, want registration.State) {
	t.Helper()
	eventually(t, func() error {
		if got := r.registrar.Status(); got.State != want {
			return fmt.Errorf("the registration is %s, want %s", got, want)
		}
		return nil
	})
}

// eventually asks until check is nil.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(timeout)
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatal(err)
		}
	}
}

func podCreation() admission.Rule {
	return admission.Rule{Resource: "pods", Operations: []admission.Operation{admission.Create}}
}

// tryPod creates a Pod with dryRun.
func tryPod(client kubernetes.Interface, name string, annotations map[string]string) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec:       corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	_, err := client.CoreV1().Pods("default").Create(context.Background(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}
