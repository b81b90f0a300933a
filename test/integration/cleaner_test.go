// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

const (
	lastUsedLabel     = "kubernetes.io/legacy-token-last-used"
	invalidSinceLabel = "kubernetes.io/legacy-token-invalid-since"

	// longAgo makes a Secret look old. The clock cannot be changed, so labels and the tracking
	// ConfigMap have old dates.
	longAgo = "2020-01-01"

	// shortPeriod makes every token unused that was last used before today.
	shortPeriod = "--legacy-service-account-token-clean-up-period=1ms"
)

// secretForEveryRule creates a filled Secret for every rule, and Pods that use some of them.
func secretForEveryRule(t *testing.T, c *testcluster.ControlPlane) (namespace string) {
	t.Helper()
	namespace = c.Namespace(t)
	now := today(t)
	secret := func(name string) *corev1.Secret { return testcluster.TokenSecret(namespace, name, "app") }
	optedOut := secret("opted-out")
	optedOut.Annotations["sa-controller-manager/keep"] = "true"
	labels := map[string]map[string]string{
		"used-long-ago":     {lastUsedLabel: longAgo},
		"used-today":        {lastUsedLabel: now},
		"used-no-date":      {lastUsedLabel: "2020-01-01-1"},
		"used-in-2999":      {lastUsedLabel: "2999-01-01"},
		"marked-long-ago":   {invalidSinceLabel: longAgo},
		"marked-and-used":   {invalidSinceLabel: longAgo, lastUsedLabel: longAgo},
		"marked-today":      {invalidSinceLabel: now},
		"marked-no-date":    {invalidSinceLabel: "garbage"},
		"marked-in-2999":    {invalidSinceLabel: "2999-01-01"},
		"marked-and-tried":  {invalidSinceLabel: longAgo, lastUsedLabel: now},
		"marked-in-volume":  {invalidSinceLabel: longAgo},
		"marked-and-manual": {invalidSinceLabel: longAgo},
	}
	secrets := []*corev1.Secret{secret("unused"), secret("manual"), secret("in-volume"), secret("in-variable"), optedOut}
	for name := range labels {
		if name != "marked-and-manual" {
			secrets = append(secrets, secret(name))
		}
	}
	filledSecrets(t, c, namespace, secrets...)
	c.CreateSecret(t, secret("marked-and-manual")) // not filled and not referenced
	for name, labels := range labels {
		for label, value := range labels {
			c.PatchSecret(t, namespace, name, fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, label, value))
		}
	}
	createPod(t, c, namespace, "one", "in-volume", corev1.Container{Name: "main", Image: "image"})
	createPod(t, c, namespace, "two", "marked-in-volume", corev1.Container{
		Name: "main", Image: "image",
		Env: []corev1.EnvVar{{Name: "TOKEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "in-variable"}, Key: "token",
		}}}},
	})
	return namespace
}

// TestLegacyTokenCleaner has our cleaner and that of kube-controller-manager decide on the same Secrets.
func TestLegacyTokenCleaner(t *testing.T) {
	t.Parallel()
	c := testcluster.New(t, devcluster.Options{})
	trackSince(t, c, longAgo)
	now := today(t)
	want := map[string]string{
		"unused": now, "used-long-ago": now, "marked-no-date": now,

		"manual": "", "in-volume": "", "in-variable": "", "opted-out": "",
		"used-today": "", "used-no-date": "", "used-in-2999": "",

		"marked-today": now, "marked-in-2999": "2999-01-01",
		"marked-and-tried": longAgo, "marked-in-volume": longAgo, "marked-and-manual": longAgo,
	}
	namespace := secretForEveryRule(t, c)
	account := c.GetAccount(t, namespace, "app")
	gone := c.GetSecret(t, namespace, "marked-long-ago")
	m := c.Manage(t, "--token-secrets=manual", shortPeriod)
	m.AwaitMetric(t, "sacm_legacy_token_cleaner_last_run_timestamp_seconds", nil, 1)
	testutil.Check(t, "our marks", want, marks(t, c, namespace))
	for decision, secrets := range map[string]float64{
		"mark": 3, "delete": 2, "mounted": 3, "opted-out": 1, "used": 2, "last-used-invalid": 1,
		"marked": 2, "tried-while-invalid": 1, "not-referenced": 2,
	} {
		testutil.Check(t, "Secrets counted as "+decision, secrets,
			m.Metric(t, "sacm_legacy_token_cleaner_secrets", devcluster.Labels{"decision": decision}))
	}
	m.AwaitMetric(t, "sacm_token_findings", devcluster.Labels{"finding": "unreferenced"}, 2)
	testutil.Check(t, "bad tokens", 0.0, m.Metric(t, "sacm_token_findings", devcluster.Labels{"finding": "bad-token"}))
	c.AwaitEvent(t, gone, corev1.EventTypeNormal, "LegacyTokenDeleted", "has been invalid since "+longAgo)
	c.AwaitEvent(t, c.GetSecret(t, namespace, "unused"), corev1.EventTypeNormal, "LegacyTokenMarkedInvalid", `of ServiceAccount "app"`)
	c.AwaitEvent(t, c.GetSecret(t, namespace, "marked-and-tried"), corev1.EventTypeWarning, "InvalidLegacyTokenTried",
		"was refused on "+now)
	// The token controller removes the references.
	c.AwaitAccount(t, namespace, "app", func(now *corev1.ServiceAccount) error {
		if left, want := len(now.Secrets), len(account.Secrets)-2; left != want {
			return fmt.Errorf("%d references, want %d", left, want)
		}
		return nil
	})
	m.Shutdown(t)

	// The first KCM is stopped after the expected changes. A second one is started, because a change
	// that is not expected might come later in the round.
	theirs := secretForEveryRule(t, c)
	for range 2 {
		kcm := c.StartKCM(t, "--controllers=legacy-service-account-token-cleaner", shortPeriod)
		testutil.Must(t, kcm.AwaitLog(testcluster.Context(t), "Starting legacy service account token cleaner controller"))
		c.AwaitGone(t, theirs, "marked-long-ago", "marked-and-used")
		for _, name := range []string{"unused", "used-long-ago", "marked-no-date"} {
			c.AwaitSecret(t, theirs, name, func(secret *corev1.Secret) error {
				if mark := secret.Labels[invalidSinceLabel]; mark != now {
					return fmt.Errorf("%q is marked %q", name, mark)
				}
				return nil
			})
		}
		testcluster.StopKCM(t, kcm)
	}
	want["opted-out"] = now // it does not know the annotation
	testutil.Check(t, "KCM's marks", want, marks(t, c, theirs))
}

// trackSince sets the date since when kube-apiserver tracks tokens, once kube-apiserver has written one. It keeps
// any date.
func trackSince(t *testing.T, c *testcluster.ControlPlane, since string) {
	t.Helper()
	configMaps := c.API.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	testcluster.Poll(t, "write the tracking ConfigMap", func() error {
		tracking, err := configMaps.Get(t.Context(), "kube-apiserver-legacy-service-account-token-tracking", metav1.GetOptions{})
		if err != nil {
			return err
		}
		tracking.Data = map[string]string{"since": since}
		_, err = configMaps.Update(t.Context(), tracking, metav1.UpdateOptions{})
		return err
	})
}

// today returns the date that labels get. Shortly before midnight it waits for the next day to begin.
func today(t *testing.T) string {
	t.Helper()
	now := time.Now().UTC()
	if midnight := now.Truncate(24 * time.Hour).Add(24 * time.Hour); midnight.Sub(now) < 3*time.Minute {
		select {
		case <-time.After(midnight.Sub(now)):
		case <-t.Context().Done():
		}
	}
	return time.Now().UTC().Format(time.DateOnly)
}

// marks returns the invalid-since dates of the Secrets of a namespace, by name.
func marks(t *testing.T, c *testcluster.ControlPlane, namespace string) map[string]string {
	t.Helper()
	list := testutil.Get(c.API.CoreV1().Secrets(namespace).List(t.Context(), metav1.ListOptions{}))(t)
	found := map[string]string{}
	for _, secret := range list.Items {
		found[secret.Name] = secret.Labels[invalidSinceLabel]
	}
	return found
}

// filledSecrets makes token Secrets of account app and has them filled. Those that
// are not called manual are referenced.
func filledSecrets(t *testing.T, c *testcluster.ControlPlane, namespace string, secrets ...*corev1.Secret) {
	t.Helper()
	var references []string
	for _, secret := range secrets {
		if secret.Name != "manual" {
			references = append(references, secret.Name)
		}
	}
	c.CreateAccount(t, namespace, "app", references...)
	for _, secret := range secrets {
		c.CreateSecret(t, secret)
	}
	// With its own period no Secret of today is unused.
	m := c.Manage(t, "--token-secrets=manual", "--controllers=serviceaccount-token")
	for _, secret := range secrets {
		c.AwaitFilled(t, namespace, secret.Name)
	}
	m.Shutdown(t)
}

// createPod creates a Pod of account app, which mounts a Secret. No kubelet runs it.
func createPod(t *testing.T, c *testcluster.ControlPlane, namespace, name, secret string, container corev1.Container) {
	t.Helper()
	_, err := c.API.CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			ServiceAccountName: "app", AutomountServiceAccountToken: new(false), Containers: []corev1.Container{container},
			Volumes: []corev1.Volume{{Name: "v",
				VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret}}}},
		},
	}, metav1.CreateOptions{})
	testutil.Must(t, err)
}

// TestRefusedWriteSaysWhy: kube-apiserver refuses a write of a Secret because of something that its user can change. The user
// and the log get what kube-apiserver said, but for a piece of a Secret, and the write follows once it is allowed.
func TestRefusedWriteSaysWhy(t *testing.T) {
	c := testcluster.Shared(t)
	m := c.Manage(t, "--token-secrets=auto")
	m.ExpectErrors = true

	t.Run("Policy", func(t *testing.T) { // ai-dynamo/grove#218
		namespace := c.Namespace(t)
		account := c.CreateAccount(t, namespace, "job")
		c.AwaitAutoSecret(t, namespace, account.Name)
		allow := refuseUpdates(t, c, namespace)
		secret := c.CreateSecret(t, testcluster.TokenSecret(namespace, "managed", account.Name))
		awaitWarning(t, c, namespace, "Secret", secret.Name, "only-by-the-operator")
		m.ExpectLog(t, "only-by-the-operator")
		allow()
		c.AwaitFilled(t, namespace, secret.Name)
	})

	t.Run("Quota", func(t *testing.T) { // openshift/origin#8660
		namespace := c.Namespace(t)
		c.AwaitAutoSecret(t, namespace, "default")
		limit := func(secrets string) {
			quotas, hard := c.API.CoreV1().ResourceQuotas(namespace),
				corev1.ResourceList{corev1.ResourceSecrets: resource.MustParse(secrets)}
			quota, err := quotas.Get(t.Context(), "few-secrets", metav1.GetOptions{})
			if err != nil {
				quota, err = quotas.Create(t.Context(), &corev1.ResourceQuota{
					ObjectMeta: metav1.ObjectMeta{Name: "few-secrets"}, Spec: corev1.ResourceQuotaSpec{Hard: hard},
				}, metav1.CreateOptions{})
			}
			testutil.Must(t, err)
			// No controller of quotas runs here.
			quota.Status = corev1.ResourceQuotaStatus{Hard: hard,
				Used: corev1.ResourceList{corev1.ResourceSecrets: resource.MustParse("1")}}
			testutil.Get(quotas.UpdateStatus(t.Context(), quota, metav1.UpdateOptions{}))(t)
		}
		limit("1")
		account := c.CreateAccount(t, namespace, "job")
		awaitWarning(t, c, namespace, "ServiceAccount", account.Name, "exceeded quota: few-secrets")
		limit("9")
		c.AwaitAutoSecret(t, namespace, account.Name)
	})
}

// refuseUpdates has a policy refuse updates of the Secrets of a namespace. It waits until that acts, and returns a function that ends it.
func refuseUpdates(t *testing.T, c *testcluster.ControlPlane, namespace string) (allow func()) {
	t.Helper()
	policies, name := c.API.AdmissionregistrationV1(), metav1.ObjectMeta{Name: namespace}
	_, err := policies.ValidatingAdmissionPolicies().Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: name,
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
					Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
						Resources: []string{"secrets"}},
				},
			}}},
			MatchConditions: []admissionregistrationv1.MatchCondition{{
				Name: "namespace", Expression: "object.metadata.namespace == '" + namespace + "'",
			}},
			Validations: []admissionregistrationv1.Validation{{
				Expression: "request.userInfo.username == 'operator'", Message: "only-by-the-operator",
			}},
		},
	}, metav1.CreateOptions{})
	testutil.Must(t, err)
	_, err = policies.ValidatingAdmissionPolicyBindings().Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: name,
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: namespace, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}, metav1.CreateOptions{})
	testutil.Must(t, err)
	probe := c.CreateSecret(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "probe"}})
	testcluster.Poll(t, "await that the policy acts", func() error {
		_, err := c.API.CoreV1().Secrets(namespace).Update(t.Context(), probe, metav1.UpdateOptions{})
		if err == nil {
			return errors.New("an update is allowed")
		}
		return nil
	})
	removed := false
	allow = func() {
		if !removed {
			ctx := context.WithoutCancel(t.Context())
			testutil.Must(t, errors.Join(
				policies.ValidatingAdmissionPolicyBindings().Delete(ctx, namespace, metav1.DeleteOptions{}),
				policies.ValidatingAdmissionPolicies().Delete(ctx, namespace, metav1.DeleteOptions{}),
			))
		}
		removed = true
	}
	t.Cleanup(allow)
	return allow
}

// awaitWarning waits for a Warning about an object whose note contains text.
func awaitWarning(t *testing.T, c *testcluster.ControlPlane, namespace, kind, name, text string) {
	t.Helper()
	testcluster.Poll(t, fmt.Sprintf("await a Warning about %s %s", kind, name), func() error {
		events, err := c.API.EventsV1().Events(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, event := range events.Items {
			about := event.Regarding
			if about.Kind == kind && about.Name == name && event.Type == corev1.EventTypeWarning && strings.Contains(event.Note, text) {
				return nil
			}
		}
		return fmt.Errorf("none of %d Events says %q", len(events.Items), text)
	})
}

// TestUndecryptableSecret: kube-apiserver can list no Secret because of one whose key is lost. What needs no Secrets goes on, readiness
// says why the rest does not, and it does once the Secret is gone.
func TestUndecryptableSecret(t *testing.T) {
	t.Parallel()
	c := testcluster.New(t, devcluster.Options{})
	const lost = "/registry/secrets/default/lost"
	testutil.Must(t, c.PutIntoEtcd(t.Context(), lost, "k8s:enc:aescbc:v1:lost-key:anything"))
	testcluster.Poll(t, "await that Secrets cannot be listed", func() error {
		if _, err := c.API.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{}); err == nil {
			return errors.New("they can")
		}
		return nil
	})
	m := c.StartManager(t, "--token-secrets=auto")
	m.ExpectErrors = true
	namespace := c.Namespace(t)
	c.AwaitAccounts(t, namespace, "default")
	c.AwaitConfigMap(t, namespace, rootCAName, func(*corev1.ConfigMap) error { return nil })
	testcluster.Poll(t, "await that readiness says why", func() error {
		_, err := m.Get(t.Context(), "/readyz?verbose")
		if err == nil {
			return errors.New("it is ready")
		}
		if !strings.Contains(err.Error(), "secrets") || !strings.Contains(err.Error(), "encrypted") {
			return fmt.Errorf("it does not name the Secrets and the reason: %w", err)
		}
		return nil
	})
	testutil.Must(t, c.PutIntoEtcd(t.Context(), lost, ""))
	m.AwaitReady(t)
	c.AwaitAutoSecret(t, namespace, "default")
}
