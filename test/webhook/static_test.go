// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sa-controller-manager/admission/podpolicy"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/manifests"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
)

// staticCluster starts a control plane whose kube-apiserver reads webhook configurations from files
// below the directory: from v1.37 on it has the gate on, in v1.36 it has it. It calls webhooks with the identity
// of kubeConfig, a file, unless that is empty.
func staticCluster(t *testing.T, kubeConfig string) (c *cluster, dir string) {
	t.Helper()
	minor := testutil.Get(devcluster.APIServerMinor(t.Context()))(t)
	if minor < 36 {
		t.Skipf("kube-apiserver v1.%d reads no webhooks from files", minor)
	}
	dir = t.TempDir()
	config := "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"
	for _, one := range []struct{ plugin, kind, directory string }{
		{"MutatingAdmissionWebhook", "WebhookAdmission", "mutating"},
		{"ValidatingAdmissionWebhook", "WebhookAdmission", "validating"},
		{"MutatingAdmissionPolicy", "MutatingAdmissionPolicy", "policies"},
	} {
		testutil.Must(t, os.Mkdir(filepath.Join(dir, one.directory), 0o755))
		config += fmt.Sprintf("- name: %s\n  configuration:\n    apiVersion: apiserver.config.k8s.io/v1\n    kind: %sConfiguration\n"+
			"    staticManifestsDir: %s\n", one.plugin, one.kind, filepath.Join(dir, one.directory))
		if kubeConfig != "" && one.kind == "WebhookAdmission" {
			config += "    kubeConfigFile: " + kubeConfig + "\n"
		}
	}
	file := filepath.Join(t.TempDir(), "admission.yaml")
	testutil.Must(t, os.WriteFile(file, []byte(config), 0o600))
	flags := map[string][]string{"admission-control-config-file": {file}}
	if minor == 36 {
		flags["feature-gates"] = []string{"ManifestBasedAdmissionControlConfig=true"}
	}
	return startCluster(t, flags), dir
}

// manageStatic starts a manager that registers itself by files, and returns once kube-apiserver asks
// it about Pods.
func (c *cluster) manageStatic(t *testing.T, dir string) *manager {
	t.Helper()
	m := c.start(t, "--webhook-registration=static", "--static-registration-dir="+dir)
	m.awaitReady(t)
	m.awaitRegistration(t, "registered")
	c.awaitBound(t)
	return m
}

// TestStaticRegistration is the life of one control-plane host, in order.
func TestStaticRegistration(t *testing.T) {
	t.Parallel() // it mostly waits, on a control plane of its own
	c, dir := staticCluster(t, "")
	m := c.manageStatic(t, dir)
	t.Run("LeavesNothingInTheAPI", func(t *testing.T) {
		c.unregistered(t)
		_, err := c.client.CoreV1().Secrets(metav1.NamespaceSystem).Get(t.Context(), caSecretName, metav1.GetOptions{})
		testutil.Expect(t, apierrors.IsNotFound(err), "get the serving CA: got %v, want that there is none", err)
	})
	t.Run("OutlivesDeletionInTheAPI", func(t *testing.T) {
		load := c.traffic(t, c.namespace(t))
		testutil.Must(t, c.mutating().DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
		load.Lasts(t, 2*time.Second)
		load.Unharmed(t)
	})
	t.Run("HoldsFromTheFirstRequest", func(t *testing.T) {
		m.stop(t)
		testutil.Must(t, errors.Join(c.KillAPIServer(), c.StartAPIServer(t.Context())))
		pods := c.client.CoreV1().Pods(metav1.NamespaceDefault)
		_, err := pods.Create(t.Context(), newPod(), metav1.CreateOptions{})
		testutil.CheckError(t, "a Pod without us", "failed calling webhook", err)
		// NodeRestriction is off here, and the last group is what permits to create Pods.
		config := c.Config()
		config.Impersonate = rest.ImpersonationConfig{UserName: "system:node:node", Groups: []string{"system:nodes", "system:masters"}}
		kubelet := testutil.Get(kubernetes.NewForConfig(config))(t)
		if _, err := kubelet.CoreV1().Pods(metav1.NamespaceDefault).Create(t.Context(), newPod(mirror),
			metav1.CreateOptions{}); err != nil {
			t.Errorf("a mirror pod of the node's own: %v", err)
		}
		c.manageStatic(t, dir)
	})
}

// TestStaticIsProved: without the client certificate that --webhook-client-ca-file wants of kube-apiserver,
// nothing binds, and readiness says why.
func TestStaticIsProved(t *testing.T) {
	t.Parallel() // it mostly waits, on a control plane of its own
	c, dir := staticCluster(t, "")
	load := c.traffic(t, c.namespace(t))
	m := c.start(t, "--webhook-registration=static", "--static-registration-dir="+dir, "--webhook-client-ca-file="+c.ClientCAFile())
	m.faulty = true
	m.awaitNotReady(t, "asked for the client to provide credentials")
	load.Lasts(t, 2*time.Second)
	for _, one := range load.Finish() {
		testutil.Require(t, one.Err == nil, "a Pod was refused: %v", one.Err)
	}
	m.stop(t)

	// Bound, kube-apiserver is refused later: readiness repeats the proof.
	m = c.manageStatic(t, dir)
	m.stop(t)
	next := c.start(t, "--webhook-registration=static", "--static-registration-dir="+dir, "--webhook-client-ca-file="+c.ClientCAFile(),
		"--webhook-port="+strconv.Itoa(m.port))
	next.faulty = true
	next.awaitNotReady(t, "asked for the client to provide credentials")
	testutil.Check(t, "registered, while every Pod is refused", 0.0,
		next.metric(t, "sacm_webhook_registration_state", devcluster.Labels{"state": "registered"}))

	// The way out, with our process running and after its death.
	c.unregisters(t, next, dir)
}

// awaitNotReady waits until readiness fails with a text.
func (m *manager) awaitNotReady(t *testing.T, text string) {
	t.Helper()
	poll(t, "await that readiness fails", func(ctx context.Context) error {
		report, err := m.Get(ctx, "/readyz?verbose")
		if err != nil && strings.Contains(report+err.Error(), text) {
			return nil
		}
		return fmt.Errorf("the report is %v:\n%s", err, report)
	})
}

// unregisters takes the webhook out in the API, which says that it binds by files, and on the host.
func (c *cluster) unregisters(t *testing.T, m *manager, dir string) {
	t.Helper()
	run := func(fails string, args ...string) { t.Helper(); runWebhook(t, fails, args...) }
	onHost := "--static-registration-dir=" + dir
	run("webhook unregister --static-registration-dir=", "unregister", "--kubeconfig="+c.Kubeconfig())
	for _, alive := range []bool{true, false} {
		if !alive {
			m.stop(t)
			run("", "register", onHost)
			c.manageStatic(t, dir).stop(t)
		}
		run("", "unregister", onHost)
		poll(t, "await that Pods are admitted", func(ctx context.Context) error {
			_, err := c.client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, newPod(), metav1.CreateOptions{})
			return err
		})
		if alive {
			m.awaitRegistration(t, "off")
		}
	}
	run("", "unregister", "--kubeconfig="+c.Kubeconfig())
}

// runWebhook runs a command of the webhook, which must fail with a text if that is not empty.
func runWebhook(t *testing.T, fails string, args ...string) {
	t.Helper()
	binary := testutil.Get(shared.binary())(t)
	out, err := exec.CommandContext(t.Context(), binary.Path, append([]string{"webhook"}, args...)...).CombinedOutput()
	testutil.Expect(t, (err != nil) == (fails != "") && strings.Contains(string(out), fails), "webhook %v: %v, want %q:\n%s", args, err,
		fails,
		out)
}

// unregistered wants no configuration in the API.
func (c *cluster) unregistered(t *testing.T) {
	t.Helper()
	_, mutating := c.mutating().Get(t.Context(), configurationName, metav1.GetOptions{})
	_, validating := c.validating().Get(t.Context(), configurationName, metav1.GetOptions{})
	for _, err := range []error{mutating, validating} {
		testutil.Expect(t, apierrors.IsNotFound(err), "get a configuration: got %v, want that there is none", err)
	}
}

// awaitRegistration returns once the manager, which is ready, says that of its
// registration.
func (m *manager) awaitRegistration(t *testing.T, state string) {
	t.Helper()
	line := regexp.MustCompile(`(?m)^\[\+\]webhook-registration ok: ` + state + `:`)
	poll(t, "await that the registration is "+state, func(ctx context.Context) error {
		report, err := m.Get(ctx, "/readyz?verbose")
		if err == nil && !line.MatchString(report) {
			err = fmt.Errorf("the report is:\n%s", report)
		}
		return err
	})
}

const withoutAccount = "the Pod has no ServiceAccount"

// restrict creates the policy for Pods, as the manifests have it, and returns once it acts.
func (c *cluster) restrict(t *testing.T) {
	t.Helper()
	objects := testutil.Get(manifests.PodPolicy())(t)
	c.apply(t, objects)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), timeout)
		defer cancel()
		testutil.Must(t, podpolicy.Refusal.Delete(ctx, c.client))
		// It acts for a moment more, and the next test is not to meet it.
		testutil.Must(t, await.Poll(ctx, func(ctx context.Context) error {
			if _, err := c.try(ctx, metav1.NamespaceDefault, newPod()); err != nil && strings.Contains(err.Error(), withoutAccount) {
				return err
			}
			return nil
		}))
	})
	c.awaitBare(t, false)
}

// awaitBare returns once a Pod without an account is admitted, or refused by the policy.
func (c *cluster) awaitBare(t *testing.T, admitted bool) {
	t.Helper()
	poll(t, "await the policy for Pods", func(ctx context.Context) error {
		_, err := c.try(ctx, metav1.NamespaceDefault, newPod())
		if refused := err != nil && strings.Contains(err.Error(), withoutAccount); refused == admitted || !refused && err != nil {
			return fmt.Errorf("got %v, want it admitted %t", err, admitted)
		}
		return nil
	})
}

// TestPodPolicy has neither plugin nor webhook, but in the end.
func TestPodPolicy(t *testing.T) {
	c := controlPlane(t)
	namespace := c.namespace(t)
	older := c.create(t, namespace, newPod())
	_, problem, err := podpolicy.Refusal.Problem(t.Context(), c.client)
	testutil.Expect(t, err == nil && strings.Contains(problem, "no ValidatingAdmissionPolicyBinding "),
		"without a policy the problem is %q, %v", problem, err)
	c.restrict(t)
	if _, problem, err := podpolicy.Refusal.Problem(t.Context(), c.client); err != nil || problem != "" {
		t.Errorf("the problem is %q, %v", problem, err)
	}

	c.refuse(t, namespace, newPod(), withoutAccount)
	c.refuse(t, metav1.NamespaceSystem, newPod(), withoutAccount)
	c.refuse(t, namespace, newPod(func(pod *corev1.Pod) { pod.Annotations = map[string]string{"a": "b"} }), withoutAccount)
	named := c.create(t, namespace, newPod(of("nobody")))
	c.create(t, namespace, newPod(mirror))
	for _, pod := range []*corev1.Pod{older, named} {
		testutil.CheckError(t, "kubectl debug", "", c.debug(t, pod))
		_, err := c.client.CoreV1().Pods(namespace).Patch(t.Context(), pod.Name, types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
		testutil.CheckError(t, "an update", "", err)
		_, err = c.client.CoreV1().Pods(namespace).Patch(t.Context(), pod.Name, types.MergePatchType,
			[]byte(`{"status":{"phase":"Running"}}`), metav1.PatchOptions{}, "status")
		testutil.CheckError(t, "an update of the status", "", err)
		testutil.Must(t, c.client.CoreV1().Pods(namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}))
	}

	testutil.Must(t, podpolicy.SetAction(t.Context(), c.client, admissionregistrationv1.Warn))
	c.awaitBare(t, true)
	_, problem, err = podpolicy.Refusal.Problem(t.Context(), c.client)
	testutil.Expect(t, err == nil && strings.Contains(problem, "spec.validationActions is [Warn], want [Deny]"), "the problem is %q, %v",
		problem, err)
	testutil.Must(t, podpolicy.SetAction(t.Context(), c.client, admissionregistrationv1.Deny))
	c.awaitBare(t, false)

	c.manage(t)
	testutil.Check(t, "account of a Pod with the webhook", "default", c.create(t, namespace, newPod()).Spec.ServiceAccountName)
}
