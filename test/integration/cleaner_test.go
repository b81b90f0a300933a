// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

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
)

// TestLegacyTokenCleaner covers cases 45 to 48. All parts change since when tokens are
// tracked, so they have a control plane of their own and run one after the other.
func TestLegacyTokenCleaner(t *testing.T) {
	t.Parallel()
	c := ownControlPlane(t, devcluster.Options{})
	c.awaitTracking(t)
	for _, part := range []struct {
		name string
		run  func(*testing.T, *controlPlane)
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
			c.trackSince(t, longAgo)
			part.run(t, c)
		})
	}
}

// zoo is a Secret for every rule, all filled, and Pods that use some of them.
func (c *controlPlane) zoo(t *testing.T) (namespace string) {
	t.Helper()
	namespace = c.namespace(t)
	now := today(t)
	secret := func(name string, changes ...change) *corev1.Secret {
		return tokenSecret(namespace, name, "app", changes...)
	}
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
	secrets := []*corev1.Secret{
		secret("unused"), secret("manual"), secret("in-volume"), secret("in-variable"),
		secret("opted-out", withAnnotation(keepAnnotation, "true")),
	}
	for name := range labels {
		if name != "marked-and-manual" {
			secrets = append(secrets, secret(name))
		}
	}
	c.filledSecrets(t, namespace, secrets...)
	c.createSecret(t, secret("marked-and-manual")) // nobody fills or references it
	for name, labels := range labels {
		for label, value := range labels {
			c.patchSecret(t, namespace, name, fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, label, value))
		}
	}
	c.createPod(t, namespace, using("one", inVolume("in-volume")))
	c.createPod(t, namespace, using("two", inVolume("marked-in-volume"), inVariable("in-variable")))
	return namespace
}

// testCleanerDecisions has both cleaners decide on the same Secrets.
func testCleanerDecisions(t *testing.T, c *controlPlane) {
	now := today(t)
	want := map[string]string{
		"unused": now, "used-long-ago": now, "marked-no-date": now,

		"manual": "", "in-volume": "", "in-variable": "", "opted-out": "",
		"used-today": "", "used-no-date": "", "used-in-2999": "",

		"marked-today": now, "marked-in-2999": "2999-01-01",
		"marked-and-tried": longAgo, "marked-in-volume": longAgo, "marked-and-manual": longAgo,
	}
	namespace := c.zoo(t)
	account := c.getAccount(t, namespace, "app")
	gone := c.getSecret(t, namespace, "marked-long-ago")
	m := c.cleaner(t)
	if diff := cmp.Diff(want, c.marks(t, namespace)); diff != "" {
		t.Errorf("our marks (-want +got):\n%s", diff)
	}
	for decision, secrets := range map[string]float64{
		"mark": 3, "delete": 2, "mounted": 3, "opted-out": 1, "used": 2, "last-used-invalid": 1,
		"marked": 2, "tried-while-invalid": 1, "not-referenced": 2,
	} {
		if got := m.decided(t, decision); got != secrets {
			t.Errorf("%v Secrets are counted as %q, want %v", got, decision, secrets)
		}
	}
	c.awaitEvent(t, aboutSecret(gone, "LegacyTokenDeleted"), "has been invalid since "+longAgo)
	c.awaitEvent(t, aboutSecret(c.getSecret(t, namespace, "unused"), "LegacyTokenMarkedInvalid"), `of ServiceAccount "app"`)
	c.awaitWarning(t, aboutSecret(c.getSecret(t, namespace, "marked-and-tried"), "InvalidLegacyTokenTried"), "was refused with it on "+now)
	// The token controller sees to the references.
	c.awaitAccount(t, namespace, "app", func(now *corev1.ServiceAccount) error {
		if left, want := len(now.Secrets), len(account.Secrets)-2; left != want {
			return fmt.Errorf("%d references, want %d", left, want)
		}
		return nil
	})
	m.stop(t)

	// The first one of KCM is told to end when it has done what it should. What else it
	// would do in its round, the second one has begun to do before it is told to end.
	theirs := c.zoo(t)
	for range 2 {
		kcm := c.startKCM(t, "--controllers=legacy-service-account-token-cleaner", shortPeriod)
		if err := kcm.AwaitLog(limited(t), "Starting legacy service account token cleaner controller"); err != nil {
			t.Fatal(err)
		}
		c.awaitGone(t, theirs, "marked-long-ago", "marked-and-used")
		for _, name := range []string{"unused", "used-long-ago", "marked-no-date"} {
			c.awaitSecret(t, theirs, name, func(secret *corev1.Secret) error {
				if mark := secret.Labels[invalidSinceLabel]; mark != now {
					return fmt.Errorf("%q is marked %q", name, mark)
				}
				return nil
			})
		}
		if _, err := kcm.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	want["opted-out"] = now // it does not know the annotation
	if diff := cmp.Diff(want, c.marks(t, theirs)); diff != "" {
		t.Errorf("KCM's marks (-want +got):\n%s", diff)
	}
}

// testLifeOfAToken follows one token from its mark to its end, as kube-apiserver sees
// it.
func testLifeOfAToken(t *testing.T, c *controlPlane) {
	namespace, now := c.namespace(t), today(t)
	c.filledSecrets(t, namespace, tokenSecret(namespace, "token", "app"))
	account := c.getAccount(t, namespace, "app")
	secret := c.getSecret(t, namespace, "token")
	setLabels := func(marked, used string) {
		c.patchSecret(t, namespace, "token", fmt.Sprintf(`{"metadata":{"labels":{%q:%s,%q:%s}}}`, invalidSinceLabel, marked, lastUsedLabel, used))
	}

	c.cleaner(t).stop(t)
	c.refusedAsInvalid(t, secret)
	tried := c.awaitSecret(t, namespace, "token", func(secret *corev1.Secret) error {
		if secret.Labels[lastUsedLabel] != now {
			return fmt.Errorf("used on %q", secret.Labels[lastUsedLabel])
		}
		return nil
	})
	if mark := tried.Labels[invalidSinceLabel]; mark != now {
		t.Errorf("after the try it is marked %q, want %q: kube-apiserver leaves the mark", mark, now)
	}

	// The mark is old, and so it would be deleted; but somebody has tried it today.
	setLabels(`"`+longAgo+`"`, `"`+now+`"`)
	m := c.cleaner(t)
	if tried := m.decided(t, "tried-while-invalid"); tried < 1 {
		t.Error("the try is not counted")
	}
	m.stop(t)

	// The way back.
	setLabels("null", `"`+now+`"`)
	c.accepted(t, secret, account)
	c.cleaner(t).stop(t)
	if mark, marked := c.getSecret(t, namespace, "token").Labels[invalidSinceLabel]; marked {
		t.Errorf("what is in use is marked %q", mark)
	}

	setLabels(`"`+longAgo+`"`, `"`+longAgo+`"`)
	c.cleaner(t)
	c.awaitGone(t, namespace, "token")
	c.refused(t, secret.Data[corev1.ServiceAccountTokenKey])
}

// testCleanerDryRun has kube-apiserver count what a dry run asks for.
func testCleanerDryRun(t *testing.T, c *controlPlane) {
	namespace := c.zoo(t)
	versions, before := c.versions(t, namespace), c.countRequests(t)
	m := c.cleaner(t, "--legacy-token-clean-up-dry-run", "--controllers=legacy-service-account-token-cleaner")
	after := c.countRequests(t)
	for what, n := range after {
		if n == before[what] {
			delete(after, what)
		}
	}
	// Two would be deleted, and for each Secret and account are looked at.
	want := requests{"GET secrets": before["GET secrets"] + 2, "GET serviceaccounts": before["GET serviceaccounts"] + 2}
	if diff := cmp.Diff(want, after); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(versions, c.versions(t, namespace)); diff != "" {
		t.Errorf("resourceVersions (-before +after):\n%s", diff)
	}
	if would := m.decided(t, "delete"); would != 2 {
		t.Errorf("it would delete %v, want 2", would)
	}
	if done := m.metric(t, "sacm_legacy_token_cleanups_total", nil); done != 0 {
		t.Errorf("%v are counted as done", done)
	}
	c.awaitEvent(t, aboutSecret(c.getSecret(t, namespace, "unused"), "LegacyTokenWouldBeMarked"), "but for the dry run")
	c.awaitEvent(t, aboutSecret(c.getSecret(t, namespace, "marked-long-ago"), "LegacyTokenWouldBeDeleted"), "but for the dry run")
}

// testCleanerInModeAuto shows that the two that make and delete Secrets come to rest.
func testCleanerInModeAuto(t *testing.T, c *controlPlane) {
	namespace := c.namespace(t)
	const accounts = 5
	for i := range accounts {
		c.createAccount(t, namespace, accountName(i))
	}
	auto := []string{"--token-secrets=auto"}
	m := c.manage(t, auto...)
	c.awaitOneOfOurs(t, namespace, accounts)
	c.fence(t, m)
	m.stop(t)
	before := c.versions(t, namespace)

	// Each round comes when all Secrets are older than the period.
	for range 3 {
		m := c.cleaner(t, auto...)
		c.fence(t, m)
		if own := m.decided(t, "own"); own < accounts {
			t.Errorf("%v Secrets are left to mode auto, want %d at least", own, accounts)
		}
		m.stop(t)
	}
	if diff := cmp.Diff(before, c.versions(t, namespace)); diff != "" {
		t.Fatalf("resourceVersions (-before +after):\n%s", diff)
	}

	// In mode manual they are what any unused Secret is.
	m = c.cleaner(t)
	for name, mark := range c.marks(t, namespace) {
		if mark == "" {
			t.Errorf("secret %q is not marked in mode manual", name)
		}
	}
	m.stop(t)

	// Back in mode auto every account gets one more, once.
	m = c.manage(t, auto...)
	c.awaitSecrets(t, namespace, atLeastFilled(2*(accounts+1)))
	c.fence(t, m)
	m.stop(t)
	before = c.versions(t, namespace)
	m = c.cleaner(t, auto...)
	c.fence(t, m)
	if diff := cmp.Diff(before, c.versions(t, namespace)); diff != "" {
		t.Errorf("after the way there and back, resourceVersions (-before +after):\n%s", diff)
	}
}

// testCleanersInTurn covers case 48: the next leader has a round at once, and finds
// nothing to do.
func testCleanersInTurn(t *testing.T, c *controlPlane) {
	namespace := c.zoo(t)
	flags := []string{
		"--token-secrets=manual", shortPeriod, "--controllers=legacy-service-account-token-cleaner",
		"--leader-elect=true", "--leader-elect-resource-name=cleaners", "--leader-elect-retry-period=500ms",
	}
	first := c.manage(t, flags...)
	first.awaitRound(t)
	second := c.manage(t, flags...)
	if rounds := second.metric(t, "sacm_legacy_token_cleaner_last_run_timestamp_seconds", nil); rounds != 0 {
		t.Error("a replica that does not lead has had a round")
	}
	before, counted := c.versions(t, namespace), c.countRequests(t)
	first.stop(t)
	second.awaitRound(t)
	if diff := cmp.Diff(before, c.versions(t, namespace)); diff != "" {
		t.Errorf("resourceVersions (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(counted, c.countRequests(t)); diff != "" {
		t.Errorf("requests (-before +after):\n%s", diff)
	}
	if marked := second.decided(t, "marked"); marked < 4 {
		t.Errorf("the second one sees %v marks, want those of the first one too", marked)
	}
	c.once(t, aboutSecret(c.getSecret(t, namespace, "unused"), "LegacyTokenMarkedInvalid"))
}

// testCleanerPages has the one Pod that matters on the second page.
func testCleanerPages(t *testing.T, c *controlPlane) {
	namespace, quiet := c.namespace(t), c.namespace(t)
	c.createAccount(t, quiet, "app", referencing("used"))
	c.createSecret(t, tokenSecret(quiet, "used", "app", withLabel(lastUsedLabel, today(t))))
	c.filledSecrets(t, namespace, tokenSecret(namespace, "in-volume", "app"), tokenSecret(namespace, "unused", "app"))
	var creating sync.WaitGroup
	for half := range 2 {
		creating.Go(func() {
			for i := range 250 {
				c.createPod(t, namespace, using(fmt.Sprintf("a-%d-%d", half, i)))
			}
		})
	}
	creating.Wait()
	c.createPod(t, namespace, using("z", inVolume("in-volume")))

	proxy := c.proxy(t)
	m := c.manageThrough(t, proxy, "--token-secrets=manual", shortPeriod)
	m.awaitRound(t)
	if diff := cmp.Diff(map[string]string{"in-volume": "", "unused": today(t)}, c.marks(t, namespace)); diff != "" {
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
func testCleanerIdle(t *testing.T, c *controlPlane) {
	namespace := c.zoo(t)
	before := c.marks(t, namespace)
	cases := []struct {
		name, reason string
		track        func()
		want         string
	}{
		{
			name: "Absent", reason: "kube-apiserver takes its time to make it again",
			track: func() { c.untrack(t) }, want: "tracking-absent",
		},
		{
			name: "TooShort", reason: "a day that has not ended does not count",
			track: func() { c.trackSince(t, today(t)) }, want: "tracking-too-short",
		},
		{
			name: "Future", track: func() { c.trackSince(t, "2999-01-01") }, want: "tracking-too-short",
		},
	}
	for _, tc := range cases {
		tc.track()
		m := c.cleaner(t)
		for _, reason := range []string{"tracking-absent", "tracking-invalid", "tracking-too-short"} {
			want := 0.0
			if reason == tc.want {
				want = 1
			}
			if got := m.metric(t, "sacm_legacy_token_cleaner_idle", devcluster.Labels{"reason": reason}); got != want {
				t.Errorf("%s: %s: idle for %s is %v, want %v", tc.name, tc.reason, reason, got, want)
			}
		}
		m.stop(t)
		if after := c.marks(t, namespace); !maps.Equal(before, after) {
			t.Errorf("%s: marks (-before +after):\n%s", tc.name, cmp.Diff(before, after))
		}
	}

	// Garbage does not last: kube-apiserver writes the present day over it.
	c.trackSince(t, "garbage")
	poll(t, "await that kube-apiserver mends the tracking ConfigMap", func() error {
		return c.trackedSince(t, today(t))
	})
}
