// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package cleaner

import (
	"fmt"
	"maps"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/faultproxy"
	"sa-controller-manager/test/integration/testcluster"
)

// TestLegacyTokenCleaner covers cases 45 to 48. All parts change since when tokens are
// tracked, so they have a control plane of their own and run one after the other.
func TestLegacyTokenCleaner(t *testing.T) {
	t.Parallel()
	c := testcluster.New(t, devcluster.Options{})
	c.AwaitTracking(t)
	for _, part := range []struct {
		name string
		run  func(*testing.T, *testcluster.ControlPlane)
		long bool
	}{
		{name: "SameAsKubeControllerManager", run: testCleanerDecisions},
		{name: "LifeOfAToken", run: testLifeOfAToken},
		{name: "DryRun", run: testCleanerDryRun, long: true},
		{name: "ModeAuto", run: testCleanerInModeAuto, long: true},
		{name: "TwoLeaders", run: testCleanersInTurn, long: true},
		{name: "PagesOfPods", run: testCleanerPages, long: true},
		{name: "Idle", run: testCleanerIdle, long: true},
	} {
		t.Run(part.name, func(t *testing.T) {
			if part.long {
				await.Long(t)
			}
			c.TrackSince(t, testcluster.LongAgo)
			part.run(t, c)
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
	if diff := cmp.Diff(want, c.Marks(t, namespace)); diff != "" {
		t.Errorf("our marks (-want +got):\n%s", diff)
	}
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
		if err := kcm.AwaitLog(testcluster.Context(t), "Starting legacy service account token cleaner controller"); err != nil {
			t.Fatal(err)
		}
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
	if diff := cmp.Diff(want, c.Marks(t, theirs)); diff != "" {
		t.Errorf("KCM's marks (-want +got):\n%s", diff)
	}
}

// testLifeOfAToken follows one token from its mark to its end, as kube-apiserver sees
// it.
func testLifeOfAToken(t *testing.T, c *testcluster.ControlPlane) {
	namespace, now := c.Namespace(t), testcluster.Today(t)
	filledSecrets(t, c, namespace, testcluster.TokenSecret(namespace, "token", "app"))
	account := c.GetAccount(t, namespace, "app")
	secret := c.GetSecret(t, namespace, "token")
	setLabels := func(marked, used string) {
		c.PatchSecret(t, namespace, "token", fmt.Sprintf(`{"metadata":{"labels":{%q:%s,%q:%s}}}`, testcluster.InvalidSinceLabel, marked, testcluster.LastUsedLabel, used))
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
	c.AwaitRefused(t, secret.Data[corev1.ServiceAccountTokenKey])
}

// testCleanerDryRun compares kube-apiserver's count of requests before and after a dry run.
func testCleanerDryRun(t *testing.T, c *testcluster.ControlPlane) {
	namespace := secretForEveryRule(t, c)
	versions, before := c.ResourceVersions(t, namespace), c.CountRequests(t)
	m := cleaner(t, c, "--legacy-token-clean-up-dry-run", "--controllers=legacy-service-account-token-cleaner")
	after := c.CountRequests(t)
	for what, n := range after {
		if n == before[what] {
			delete(after, what)
		}
	}
	// Two would be deleted. For each the Secret and the account are read.
	want := testcluster.RequestCounts{"GET secrets": before["GET secrets"] + 2, "GET serviceaccounts": before["GET serviceaccounts"] + 2}
	if diff := cmp.Diff(want, after); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(versions, c.ResourceVersions(t, namespace)); diff != "" {
		t.Errorf("resourceVersions (-before +after):\n%s", diff)
	}
	if would := decided(t, m, "delete"); would != 2 {
		t.Errorf("it would delete %v, want 2", would)
	}
	if done := m.Metric(t, "sacm_legacy_token_cleanups_total", nil); done != 0 {
		t.Errorf("%v are counted as done", done)
	}
	c.AwaitEvent(t, testcluster.AboutSecret(c.GetSecret(t, namespace, "unused"), "LegacyTokenWouldBeMarked"), "but for the dry run")
	c.AwaitEvent(t, testcluster.AboutSecret(c.GetSecret(t, namespace, "marked-long-ago"), "LegacyTokenWouldBeDeleted"), "but for the dry run")
}

// testCleanerInModeAuto shows that the cleaner and mode auto do not undo each other's changes.
func testCleanerInModeAuto(t *testing.T, c *testcluster.ControlPlane) {
	namespace := c.Namespace(t)
	const accounts = 5
	for i := range accounts {
		c.CreateAccount(t, namespace, testcluster.AccountName(i))
	}
	auto := []string{"--token-secrets=auto"}
	m := c.Manage(t, auto...)
	c.AwaitOneAutoSecretEach(t, namespace, accounts)
	c.AwaitProcessed(t, m)
	m.Shutdown(t)
	before := c.ResourceVersions(t, namespace)

	// Each round comes when all Secrets are older than the period.
	for range 3 {
		m := cleaner(t, c, auto...)
		c.AwaitProcessed(t, m)
		if own := decided(t, m, "own"); own < accounts {
			t.Errorf("%v Secrets are left to mode auto, want %d at least", own, accounts)
		}
		m.Shutdown(t)
	}
	if diff := cmp.Diff(before, c.ResourceVersions(t, namespace)); diff != "" {
		t.Fatalf("resourceVersions (-before +after):\n%s", diff)
	}

	// In mode manual they are marked as any unused Secret.
	m = cleaner(t, c)
	for name, mark := range c.Marks(t, namespace) {
		if mark == "" {
			t.Errorf("secret %q is not marked in mode manual", name)
		}
	}
	m.Shutdown(t)

	// Back in mode auto every account gets one more Secret.
	m = c.Manage(t, auto...)
	c.AwaitSecrets(t, namespace, testcluster.AtLeastFilled(2*(accounts+1)))
	c.AwaitProcessed(t, m)
	m.Shutdown(t)
	before = c.ResourceVersions(t, namespace)
	m = cleaner(t, c, auto...)
	c.AwaitProcessed(t, m)
	if diff := cmp.Diff(before, c.ResourceVersions(t, namespace)); diff != "" {
		t.Errorf("after the way there and back, resourceVersions (-before +after):\n%s", diff)
	}
}

// testCleanersInTurn covers case 48: the next leader starts a round at once and changes nothing.
func testCleanersInTurn(t *testing.T, c *testcluster.ControlPlane) {
	namespace := secretForEveryRule(t, c)
	flags := []string{
		"--token-secrets=manual", shortPeriod, "--controllers=legacy-service-account-token-cleaner",
		"--leader-elect=true", "--leader-elect-resource-name=cleaners", "--leader-elect-retry-period=500ms",
	}
	first := c.Manage(t, flags...)
	first.AwaitRound(t)
	second := c.Manage(t, flags...)
	if rounds := second.Metric(t, "sacm_legacy_token_cleaner_last_run_timestamp_seconds", nil); rounds != 0 {
		t.Error("a replica that does not lead has had a round")
	}
	before, counted := c.ResourceVersions(t, namespace), c.CountRequests(t)
	first.Shutdown(t)
	second.AwaitRound(t)
	if diff := cmp.Diff(before, c.ResourceVersions(t, namespace)); diff != "" {
		t.Errorf("resourceVersions (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(counted, c.CountRequests(t)); diff != "" {
		t.Errorf("requests (-before +after):\n%s", diff)
	}
	if marked := decided(t, second, "marked"); marked < 4 {
		t.Errorf("the second cleaner counts %v marks, want those of the first one too", marked)
	}
	c.ExpectOnce(t, testcluster.AboutSecret(c.GetSecret(t, namespace, "unused"), "LegacyTokenMarkedInvalid"))
}

// testCleanerPages has the one Pod that matters on the second page.
func testCleanerPages(t *testing.T, c *testcluster.ControlPlane) {
	namespace, quiet := c.Namespace(t), c.Namespace(t)
	c.CreateAccount(t, quiet, "app", testcluster.Referencing("used"))
	c.CreateSecret(t, testcluster.TokenSecret(quiet, "used", "app", testcluster.WithLabel(testcluster.LastUsedLabel, testcluster.Today(t))))
	filledSecrets(t, c, namespace, testcluster.TokenSecret(namespace, "in-volume", "app"), testcluster.TokenSecret(namespace, "unused", "app"))
	var creating sync.WaitGroup
	for half := range 2 {
		creating.Go(func() {
			for i := range 250 {
				c.CreatePod(t, namespace, testcluster.PodUsing(fmt.Sprintf("a-%d-%d", half, i)))
			}
		})
	}
	creating.Wait()
	c.CreatePod(t, namespace, testcluster.PodUsing("z", testcluster.InVolume("in-volume")))

	proxy := c.Proxy(t)
	m := c.ManageThrough(t, proxy, "--token-secrets=manual", shortPeriod)
	m.AwaitRound(t)
	if diff := cmp.Diff(map[string]string{"in-volume": "", "unused": testcluster.Today(t)}, c.Marks(t, namespace)); diff != "" {
		t.Errorf("marks (-want +got):\n%s", diff)
	}
	var pages int
	for _, request := range proxy.Requests(faultproxy.On("list", "pods")) {
		if request.Namespace == quiet || request.Namespace == "" {
			t.Errorf("unneeded: %v", request)
		}
		if request.Query.Get("limit") != "500" || request.Query.Has("resourceVersion") {
			t.Errorf("not a page of the newest state: %v", request)
		}
		if request.Namespace == namespace {
			pages++
		}
	}
	if pages != 2 {
		t.Errorf("the Pods were listed in %d pages, want 2", pages)
	}
	if watches := proxy.Requests(faultproxy.On("watch", "pods")); len(watches) > 0 {
		t.Errorf("Pods are watched: %v", watches)
	}
}

// testCleanerIdle covers case 47.
func testCleanerIdle(t *testing.T, c *testcluster.ControlPlane) {
	namespace := secretForEveryRule(t, c)
	before := c.Marks(t, namespace)
	cases := []struct {
		name, reason string
		track        func()
		want         string
	}{
		{
			name: "Absent", reason: "kube-apiserver takes its time to make it again",
			track: func() { untrack(t, c) }, want: "tracking-absent",
		},
		{
			name: "TooShort", reason: "a day that has not ended does not count",
			track: func() { c.TrackSince(t, testcluster.Today(t)) }, want: "tracking-too-short",
		},
		{
			name: "Future", track: func() { c.TrackSince(t, "2999-01-01") }, want: "tracking-too-short",
		},
	}
	for _, tc := range cases {
		tc.track()
		m := cleaner(t, c)
		for _, reason := range []string{"tracking-absent", "tracking-invalid", "tracking-too-short"} {
			want := 0.0
			if reason == tc.want {
				want = 1
			}
			if got := m.Metric(t, "sacm_legacy_token_cleaner_idle", devcluster.Labels{"reason": reason}); got != want {
				t.Errorf("%s: %s: idle for %s is %v, want %v", tc.name, tc.reason, reason, got, want)
			}
		}
		m.Shutdown(t)
		if after := c.Marks(t, namespace); !maps.Equal(before, after) {
			t.Errorf("%s: marks (-before +after):\n%s", tc.name, cmp.Diff(before, after))
		}
	}

	// Garbage does not last: kube-apiserver writes the present day over it.
	c.TrackSince(t, "garbage")
	testcluster.Poll(t, "await that kube-apiserver repairs the tracking ConfigMap", func() error {
		return trackedSince(t, c, testcluster.Today(t))
	})
}
