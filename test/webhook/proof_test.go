// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/admission/podpolicy"
	"sa-controller-manager/internal/testutil"
	"sigs.k8s.io/yaml"

	"sa-controller-manager/test/devcluster"
)

// proofCluster starts a control plane whose kube-apiserver shows a client certificate to webhooks. callers is the
// file with the CA of that.
func proofCluster(t *testing.T) (c *cluster, dir, callers string) {
	t.Helper()
	identity := t.TempDir()
	cert, key := filepath.Join(identity, "webhook.crt"), filepath.Join(identity, "webhook.key")
	config := fmt.Appendf(nil, "apiVersion: v1\nkind: Config\nusers:\n- name: '*'\n  user: {client-certificate: %s, client-key: %s}\n",
		cert, key)
	c, dir = staticCluster(t, testutil.WriteFile(t, "webhooks.kubeconfig", config))
	_, identified, err := c.Identity("webhook-caller")
	testutil.Must(t, err)
	testutil.Must(t, errors.Join(os.WriteFile(cert, identified.CertData, 0o600), os.WriteFile(key, identified.KeyData, 0o600)))
	ca := testutil.Get(os.ReadFile(c.ClientCAFile()))(t)
	return c, dir, testutil.WriteFile(t, "callers.crt", ca)
}

// burst creates as many Pods at the same time, and returns how many were refused, and the last reason.
func (c *cluster) burst(t *testing.T, namespace string, pods int) (refused int, last error) {
	t.Helper()
	var mu sync.Mutex
	var all sync.WaitGroup
	for range pods {
		all.Go(func() {
			_, err := c.client.CoreV1().Pods(namespace).Create(t.Context(), newPod(), metav1.CreateOptions{})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				refused, last = refused+1, err
			}
		})
	}
	all.Wait()
	return refused, last
}

// TestProofExpires exchanges the CA of clients, so that kube-apiserver goes on to use the connections that it has, and can
// make no new ones. That is seen, and after the webhook was taken out it does not come back before that is undone.
func TestProofExpires(t *testing.T) {
	t.Parallel() // it mostly waits, on control planes of its own
	for name, static := range map[string]bool{"Static": true, "URL": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, dir, callers := proofCluster(t)
			namespace := c.namespace(t)
			c.restrict(t)
			flags := []string{"--webhook-client-ca-file=" + callers, "--webhook-registration=url"}
			args := []string{"--kubeconfig=" + c.Kubeconfig()}
			if static {
				flags[1] = "--webhook-registration=static"
				flags = append(flags, "--static-registration-dir="+dir)
				args = []string{"--static-registration-dir=" + dir}
			}
			m := c.start(t, flags...)
			m.faulty = true
			m.awaitReady(t)
			m.awaitRegistration(t, "registered")
			c.awaitBound(t)
			refused, err := c.burst(t, namespace, 24)
			testutil.Require(t, refused <= 0, "%d Pods were refused: %v", refused, err)

			right := testutil.Get(os.ReadFile(callers))(t)
			other := testutil.Get(os.ReadFile(c.CAFile()))(t)
			testutil.Must(t, os.WriteFile(callers, other, 0o600))
			began := time.Now()
			m.awaitNotReady(t, "unreachable: ")
			t.Logf("noticed after %s", time.Since(began).Round(time.Second))
			m.wantState(t, "unreachable")
			if refused, _ := c.burst(t, namespace, 24); refused == 0 {
				t.Error("no Pod was refused, so that this shows nothing")
			}

			// Out, and in again too early.
			runWebhook(t, "", append([]string{"unregister"}, args...)...)
			poll(t, "await that Pods are admitted", func(ctx context.Context) error {
				_, err := c.client.CoreV1().Pods(namespace).Create(ctx, newPod(of("default")), metav1.CreateOptions{})
				return err
			})
			m.awaitRegistration(t, "off")
			m.wantState(t, "off")
			if static {
				runWebhook(t, "", append([]string{"register"}, args...)...)
			} else {
				c.wantAction(t, admissionregistrationv1.Warn)
				runWebhook(t, "has only what proves that kube-apiserver reaches it", append([]string{"register"}, args...)...)
				c.wantAction(t, admissionregistrationv1.Warn)
			}
			m.awaitNotReady(t, "proving: ")
			for range 20 {
				testutil.Get(c.client.CoreV1().Pods(namespace).Create(t.Context(), newPod(of("default")), metav1.CreateOptions{}))(t)
			}

			testutil.Must(t, os.WriteFile(callers, right, 0o600))
			m.awaitRegistration(t, "registered")
			m.wantState(t, "registered")
			c.awaitBound(t)
			if !static {
				runWebhook(t, "", append([]string{"register"}, args...)...)
				c.wantAction(t, admissionregistrationv1.Deny)
			}
		})
	}
}

// TestUnknown: a lost permission of ours, and a kube-apiserver that is away, say nothing of the webhook. Pods are
// served, the state is another one than that of a webhook which is not reached, and so is the alert.
func TestUnknown(t *testing.T) {
	t.Parallel() // it mostly waits, on control planes of its own
	for name, static := range map[string]bool{"Static": true, "URL": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, dir := staticCluster(t, "")
			namespace := c.namespace(t)
			kubeconfig := c.mayAllButPods(t)
			flags := []string{"--kubeconfig=" + kubeconfig, "--webhook-registration=url"}
			if static {
				flags = []string{"--kubeconfig=" + kubeconfig, "--webhook-registration=static", "--static-registration-dir=" + dir}
			}
			m := c.start(t, flags...)
			m.faulty = true
			m.awaitNotReady(t, "proving: ")
			c.mayCreatePods(t, true)
			m.awaitRegistration(t, "registered")
			c.awaitBound(t)
			m.exposes(t, "registered", static)

			c.mayCreatePods(t, false)
			m.awaitNotReady(t, "unknown: ")
			m.exposes(t, "unknown", static)
			refused, err := c.burst(t, namespace, 24)
			testutil.Expect(t, refused <= 0, "%d Pods were refused: %v", refused, err)
			c.mayCreatePods(t, true)
			m.awaitRegistration(t, "registered")
			if !static { // without kube-apiserver nobody leads
				return
			}

			testutil.Must(t, c.KillAPIServer())
			m.awaitNotReady(t, "unknown: ")
			m.exposes(t, "unknown", static)
			testutil.Must(t, c.StartAPIServer(t.Context()))
			m.awaitRegistration(t, "registered")
			m.exposes(t, "registered", static)

			runWebhook(t, "", "unregister", "--static-registration-dir="+dir)
			m.awaitRegistration(t, "off")
			m.exposes(t, "off", static)
		})
	}
}

// mayAllButPods returns the kubeconfig of a user who may do everything that a manager does, but create Pods.
func (c *cluster) mayAllButPods(t *testing.T) string {
	t.Helper()
	kubeconfig, _, err := c.Identity("prover")
	testutil.Must(t, err)
	all := []string{"*"}
	create := "configmaps secrets serviceaccounts serviceaccounts/token events leases tokenreviews subjectaccessreviews " +
		"selfsubjectaccessreviews mutatingwebhookconfigurations validatingwebhookconfigurations clustertrustbundles"
	for name, rules := range map[string][]rbacv1.PolicyRule{
		"all-but-create": {{APIGroups: all, Resources: all, Verbs: strings.Fields("get list watch update patch delete attest")}},
		"paths":          {{NonResourceURLs: all, Verbs: []string{"get"}}},
		"create":         {{APIGroups: all, Resources: strings.Fields(create), Verbs: []string{"create"}}},
		"create-pods":    {{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"create"}}},
	} {
		_, err := c.client.RbacV1().ClusterRoles().Create(t.Context(),
			&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "prover-" + name}, Rules: rules}, metav1.CreateOptions{})
		testutil.Must(t, err)
		if name != "create-pods" {
			c.binds(t, "prover-"+name)
		}
	}
	return kubeconfig
}

func (c *cluster) mayCreatePods(t *testing.T, may bool) {
	t.Helper()
	if may {
		c.binds(t, "prover-create-pods")
		return
	}
	testutil.Must(t, c.client.RbacV1().ClusterRoleBindings().Delete(t.Context(), "prover-create-pods", metav1.DeleteOptions{}))
}

func (c *cluster) binds(t *testing.T, role string) {
	t.Helper()
	_, err := c.client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "prover"}},
	}, metav1.CreateOptions{})
	testutil.Must(t, err)
}

// exposes wants the series of a state for which test/alerts evaluates the alerts.
func (m *manager) exposes(t *testing.T, state string, static bool) {
	t.Helper()
	file := testutil.Get(os.ReadFile("../alerts/testdata/exposed.yaml"))(t)
	var states []struct {
		State  string
		Series []string
	}
	testutil.Must(t, yaml.Unmarshal(file, &states))
	exposition := testutil.Get(m.Get(limited(t), "/metrics"))(t)
	compared := 0
	for _, one := range states {
		for _, series := range one.Series {
			if one.State != state || !static && strings.HasPrefix(series, "sacm_webhook_static_") {
				continue
			}
			if compared++; !strings.Contains(exposition, "\n"+series+"\n") {
				t.Errorf("in the state %s the metrics lack %s", state, series)
			}
		}
	}
	testutil.Expect(t, compared != 0, "nothing is known of the state %s", state)
}

// wantState compares the metrics: whether a static registration is loaded follows from the state.
func (m *manager) wantState(t *testing.T, want string) {
	t.Helper()
	testutil.Check(t, "metric of the state "+want, 1.0, m.metric(t, "sacm_webhook_registration_state", devcluster.Labels{"state": want}))
	loaded := m.metric(t, "sacm_webhook_static_loaded", nil)
	testutil.Expect(t, want == "registered" || loaded == 0, "in the state %s the metric says that kube-apiserver calls us", want)
}

func (c *cluster) wantAction(t *testing.T, want admissionregistrationv1.ValidationAction) {
	t.Helper()
	bindings := c.client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	binding := testutil.Get(bindings.Get(t.Context(), podpolicy.Name, metav1.GetOptions{}))(t)
	testutil.Check(t, "actions of the policy", []admissionregistrationv1.ValidationAction{want}, binding.Spec.ValidationActions)
}

// TestRefusalsAreThoseOfThePod: what is wrong with the Pod or its namespace is a 403, as in kube-apiserver, and
// no error of the webhook.
func TestRefusalsAreThoseOfThePod(t *testing.T) {
	c := controlPlane(t)
	m := c.manage(t)
	m.faulty = true // the controller cannot create the account either
	namespace := c.namespace(t)
	for _, account := range []string{"a/b", "a%b", "..", "."} {
		c.refuse(t, namespace, newPod(of(account)), "error looking up service account "+namespace+"/"+account+": ")
	}
	for text, keepAway := range map[string]func(*testing.T, string){
		"exceeded quota": c.noAccounts, "failed calling webhook": c.accountsRefused,
	} {
		namespace := c.namespace(t)
		keepAway(t, namespace)
		poll(t, "await that the account stays away", func(ctx context.Context) error {
			if err := c.client.CoreV1().ServiceAccounts(namespace).Delete(ctx, "default", metav1.DeleteOptions{}); err != nil {
				return ignoreNotFound(err)
			}
			return errors.New("it was there")
		})
		var last error
		poll(t, "await what keeps it away", func(ctx context.Context) error {
			_, last = c.client.CoreV1().Pods(namespace).Create(ctx, newPod(), metav1.CreateOptions{})
			if last == nil || !strings.Contains(last.Error(), text) {
				return fmt.Errorf("the Pod: %w", last)
			}
			return nil
		})
		refused(t, last, "error looking up service account "+namespace+"/default: ")
	}
	testutil.Check(t, "calls that count as errors of the webhook", 0.0,
		m.metric(t, "sacm_webhook_requests_total", devcluster.Labels{"outcome": "error"}))
}

// accountsRefused lets a webhook of others that does not answer keep ServiceAccounts out of the namespace until the test ends.
func (c *cluster) accountsRefused(t *testing.T, namespace string) {
	t.Helper()
	webhooks := c.client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err := webhooks.Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "accounts.example.com", ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/")},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
					Resources: []string{"serviceaccounts"}},
			}},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
			SideEffects:       new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{})
	testutil.Must(t, err)
	t.Cleanup(func() {
		testutil.Must(t, webhooks.Delete(context.WithoutCancel(t.Context()), namespace, metav1.DeleteOptions{}))
	})
}

// noAccounts gives the namespace a quota by which no ServiceAccount can be created until the test ends.
func (c *cluster) noAccounts(t *testing.T, namespace string) {
	t.Helper()
	none := corev1.ResourceList{"count/serviceaccounts": resource.MustParse("0")}
	quotas := c.client.CoreV1().ResourceQuotas(namespace)
	quota := testutil.Get(quotas.Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "accounts"}, Spec: corev1.ResourceQuotaSpec{Hard: none},
	}, metav1.CreateOptions{}))(t)
	quota.Status = corev1.ResourceQuotaStatus{Hard: none, Used: none} // as its controller does
	testutil.Get(quotas.UpdateStatus(t.Context(), quota, metav1.UpdateOptions{}))(t)
	t.Cleanup(func() { // or the managers of other tests would go on to try
		testutil.Must(t, quotas.Delete(context.WithoutCancel(t.Context()), "accounts", metav1.DeleteOptions{}))
	})
}
