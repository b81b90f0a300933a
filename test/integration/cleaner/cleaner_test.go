// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package cleaner

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

// TestLegacyTokenCleaner runs the cleaner on real Secrets. All parts change since when tokens are
// tracked, so they have a control plane of their own and run one after the other.
func TestLegacyTokenCleaner(t *testing.T) {
	t.Parallel()
	c := testcluster.New(t, devcluster.Options{})
	c.AwaitTracking(t)
	for name, part := range map[string]func(*testing.T, *testcluster.ControlPlane){
		"SameAsKubeControllerManager": testCleanerDecisions, "LifeOfAToken": testLifeOfAToken,
	} {
		t.Run(name, func(t *testing.T) {
			c.TrackSince(t, testcluster.LongAgo)
			part(t, c)
		})
	}
}

// secretForEveryRule creates a filled Secret for every rule, and Pods that use some of them.
func secretForEveryRule(t *testing.T, c *testcluster.ControlPlane) (namespace string) {
	t.Helper()
	namespace = c.Namespace(t)
	now := testcluster.Today(t)
	secret := func(name string, changes ...testcluster.SecretOption) *corev1.Secret {
		return testcluster.TokenSecret(namespace, name, "app", changes...)
	}
	labels := map[string]map[string]string{
		"used-long-ago":     {testcluster.LastUsedLabel: testcluster.LongAgo},
		"used-today":        {testcluster.LastUsedLabel: now},
		"used-no-date":      {testcluster.LastUsedLabel: "2020-01-01-1"},
		"used-in-2999":      {testcluster.LastUsedLabel: "2999-01-01"},
		"marked-long-ago":   {testcluster.InvalidSinceLabel: testcluster.LongAgo},
		"marked-and-used":   {testcluster.InvalidSinceLabel: testcluster.LongAgo, testcluster.LastUsedLabel: testcluster.LongAgo},
		"marked-today":      {testcluster.InvalidSinceLabel: now},
		"marked-no-date":    {testcluster.InvalidSinceLabel: "garbage"},
		"marked-in-2999":    {testcluster.InvalidSinceLabel: "2999-01-01"},
		"marked-and-tried":  {testcluster.InvalidSinceLabel: testcluster.LongAgo, testcluster.LastUsedLabel: now},
		"marked-in-volume":  {testcluster.InvalidSinceLabel: testcluster.LongAgo},
		"marked-and-manual": {testcluster.InvalidSinceLabel: testcluster.LongAgo},
	}
	secrets := []*corev1.Secret{
		secret("unused"), secret("manual"), secret("in-volume"), secret("in-variable"),
		secret("opted-out", testcluster.WithAnnotation(keepAnnotation, "true")),
	}
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
	c.CreatePod(t, namespace, testcluster.PodUsing("one", testcluster.InVolume("in-volume")))
	c.CreatePod(t, namespace, testcluster.PodUsing("two", testcluster.InVolume("marked-in-volume"), inVariable("in-variable")))
	return namespace
}

// testCleanerDecisions has both cleaners decide on the same Secrets.
func testCleanerDecisions(t *testing.T, c *testcluster.ControlPlane) {
	now := testcluster.Today(t)
	want := map[string]string{
		"unused": now, "used-long-ago": now, "marked-no-date": now,

		"manual": "", "in-volume": "", "in-variable": "", "opted-out": "",
		"used-today": "", "used-no-date": "", "used-in-2999": "",

		"marked-today": now, "marked-in-2999": "2999-01-01",
		"marked-and-tried": testcluster.LongAgo, "marked-in-volume": testcluster.LongAgo, "marked-and-manual": testcluster.LongAgo,
	}
	namespace := secretForEveryRule(t, c)
	account := c.GetAccount(t, namespace, "app")
	gone := c.GetSecret(t, namespace, "marked-long-ago")
	m := cleaner(t, c)
	testutil.Check(t, "our marks", want, c.Marks(t, namespace))
	for decision, secrets := range map[string]float64{
		"mark": 3, "delete": 2, "mounted": 3, "opted-out": 1, "used": 2, "last-used-invalid": 1,
		"marked": 2, "tried-while-invalid": 1, "not-referenced": 2,
	} {
		if got := decided(t, m, decision); got != secrets {
			t.Errorf("%v Secrets are counted as %q, want %v", got, decision, secrets)
		}
	}
	c.AwaitEvent(t, testcluster.AboutSecret(gone, "LegacyTokenDeleted"), "has been invalid since "+testcluster.LongAgo)
	c.AwaitEvent(t, testcluster.AboutSecret(c.GetSecret(t, namespace, "unused"), "LegacyTokenMarkedInvalid"), `of ServiceAccount "app"`)
	c.AwaitWarning(t, testcluster.AboutSecret(c.GetSecret(t, namespace, "marked-and-tried"), "InvalidLegacyTokenTried"), "was refused on "+now)
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
				if mark := secret.Labels[testcluster.InvalidSinceLabel]; mark != now {
					return fmt.Errorf("%q is marked %q", name, mark)
				}
				return nil
			})
		}
		testcluster.StopKCM(t, kcm)
	}
	want["opted-out"] = now // it does not know the annotation
	testutil.Check(t, "KCM's marks", want, c.Marks(t, theirs))
}

// testLifeOfAToken follows one token from its mark to its end, as kube-apiserver sees
// it.
func testLifeOfAToken(t *testing.T, c *testcluster.ControlPlane) {
	namespace, now := c.Namespace(t), testcluster.Today(t)
	filledSecrets(t, c, namespace, testcluster.TokenSecret(namespace, "token", "app"))
	account := c.GetAccount(t, namespace, "app")
	secret := c.GetSecret(t, namespace, "token")
	setLabels := func(marked, used string) {
		c.PatchSecret(t, namespace, "token",
			fmt.Sprintf(`{"metadata":{"labels":{%q:%s,%q:%s}}}`, testcluster.InvalidSinceLabel, marked, testcluster.LastUsedLabel, used))
	}

	cleaner(t, c).Shutdown(t)
	c.RefusedAsInvalid(t, secret)
	tried := c.AwaitSecret(t, namespace, "token", func(secret *corev1.Secret) error {
		if secret.Labels[testcluster.LastUsedLabel] != now {
			return fmt.Errorf("used on %q", secret.Labels[testcluster.LastUsedLabel])
		}
		return nil
	})
	if mark := tried.Labels[testcluster.InvalidSinceLabel]; mark != now {
		t.Errorf("after the try it is marked %q, want %q: kube-apiserver leaves the mark", mark, now)
	}

	// The mark is old enough for deletion, but the token was tried today.
	setLabels(`"`+testcluster.LongAgo+`"`, `"`+now+`"`)
	m := cleaner(t, c)
	if tried := decided(t, m, "tried-while-invalid"); tried < 1 {
		t.Error("the try is not counted")
	}
	m.Shutdown(t)

	// The way back.
	setLabels("null", `"`+now+`"`)
	c.ExpectAccepted(t, secret, account)
	cleaner(t, c).Shutdown(t)
	if mark, marked := c.GetSecret(t, namespace, "token").Labels[testcluster.InvalidSinceLabel]; marked {
		t.Errorf("what is in use is marked %q", mark)
	}

	setLabels(`"`+testcluster.LongAgo+`"`, `"`+testcluster.LongAgo+`"`)
	cleaner(t, c)
	c.AwaitGone(t, namespace, "token")
}
