// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package legacytokencleaner

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/controllers/controllertest"
	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/testutil"
)

// TestIdle: why nothing is done, until a run is done, after which that is forgotten.
func TestIdle(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, account(), tokenSecret())
	for _, step := range []struct {
		tracking []runtime.Object
		want     map[string]float64
	}{
		{nil, map[string]float64{"tracking-absent": 1}},
		{[]runtime.Object{tracking("yesterday")}, map[string]float64{"tracking-invalid": 1}},
		// The first day does not count, for nobody knows at what hour it began.
		{[]runtime.Object{tracking(cutoffDay)}, map[string]float64{"tracking-too-short": 1}},
		{[]runtime.Object{tracking("2023-04-09")}, map[string]float64{}},
		{nil, map[string]float64{}},
	} {
		w.Live(t, step.tracking...)
		w.runOnce(t)
		testutil.Check(t, "idle", step.want, w.Series(t, "sacm_legacy_token_cleaner_idle"))
		idle, acted := len(step.want) > 0, len(w.actions(t)) > 0
		testutil.Expect(t, idle != acted, "idle: %v, acted: %v", idle, acted)
	}
	testutil.Check(t, "decisions of the last run", map[string]float64{"mark": 1}, w.decisions(t))
}

func TestARefusingAPI(t *testing.T) {
	t.Parallel()
	forbidden, conflict := controllertest.Forbidden("secrets"), controllertest.Conflict("secrets")
	for name, tc := range map[string]struct {
		reason, verb, resource string
		answer                 error
		marked                 bool
		want                   string // the error; "" if there is none
		decisions              map[string]float64
	}{
		"Tracking": {
			verb: "get", resource: "configmaps", answer: forbidden, want: `look up since when legacy tokens are tracked, in config map ` +
				`kube-system/kube-apiserver-legacy-service-account-token-tracking: secrets is forbidden: no`,
		},
		"Pods": {
			reason: "what cannot be looked at may be mounted", verb: "list", resource: "pods", answer: forbidden, marked: true,
			want: `list pods of namespace "ns": secrets is forbidden: no`,
		},
		"MarkConflict": {verb: "patch", resource: "secrets", answer: conflict, decisions: map[string]float64{"changed": 1}},
		"Mark": {
			verb: "patch", resource: "secrets", answer: forbidden,
			want: "mark token secret ns/app-token invalid: kube-apiserver answered 403 Forbidden: secrets is forbidden: no",
		},
		"LiveSecret": {
			verb: "get", resource: "secrets", answer: forbidden, marked: true,
			want: `look up secret ns/app-token: secrets is forbidden: no`,
		},
		"DeleteConflict": {
			verb: "delete", resource: "secrets", answer: conflict, marked: true, decisions: map[string]float64{"changed": 1},
		},
		"Delete": {
			verb: "delete", resource: "secrets", answer: forbidden, marked: true,
			want: "delete token secret ns/app-token: kube-apiserver answered 403 Forbidden: secrets is forbidden: no",
		},
	} {
		t.Run(name, func(t *testing.T) {
			secret := tokenSecret()
			if tc.marked {
				invalidSince(longAgo)(secret)
			}
			w := newWorld(t, nil, account(), secret, tracking(longAgo))
			w.Fail(tc.verb, tc.resource, tc.answer)
			got := ""
			if err := w.tryRun(t); err != nil {
				got = err.Error()
			}
			testutil.Check(t, tc.reason+": error", tc.want, got)
			testutil.Check(t, "decisions", orNone(tc.decisions), w.decisions(t))
			testutil.Check(t, "Events of what was not done", []string(nil), w.Events())
			over := len(w.Series(t, "sacm_legacy_token_cleaner_last_run_timestamp_seconds")) > 0
			testutil.Expect(t, over == (tc.want == ""), "the run is over: %v", over)
		})
	}
}

// TestOneFailureHoldsUpNoOther: what has been done in a namespace is not done again
// because of what could not be.
func TestOneFailureHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, tracking(longAgo), tokenSecret(), tokenSecret(renamed("second")), account(referencing("second")))
	fails := true
	w.Client.PrependReactor("patch", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if fails && action.(clienttesting.PatchActionImpl).Name == "app-token" {
			return true, nil, apierrors.NewGenericServerResponse(http.StatusInternalServerError, "patch", schema.GroupResource{}, "", "", 0,
				true)
		}
		return false, nil, nil
	})
	testutil.Require(t, w.tryRun(t) != nil, "no error")
	testutil.Check(t, "after the first try, decisions", map[string]float64{"mark": 1}, w.decisions(t))
	fails = false
	w.actions(t)
	testutil.Must(t, w.sync(t.Context(), "ns"))
	testutil.Check(t, "the second try", []string{listPods, marked}, w.actions(t))
	testutil.Check(t, "decisions", map[string]float64{"mark": 2}, w.decisions(t))
	// A namespace that comes up once more has nothing left.
	err := w.sync(t.Context(), "ns")
	testutil.Expect(t, err == nil && len(w.actions(t)) == 0, "%v, or something was done", err)
}

// TestScheduleAcrossAJump: a run at the start, one every 24 hours and retries between, whatever
// the time of day does.
func TestScheduleAcrossAJump(t *testing.T) {
	t.Parallel()
	testutil.EachJump(t, func(t *testing.T, jump time.Duration) {
		clock := testutil.NewJumpingClock()
		w := newWorld(t, func(c *Config) { c.Clock = clock }, tracking(longAgo), account(), tokenSecret(usedOn("9999-01-01")))
		began := time.Now()
		var attempts []string
		w.Client.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			attempts = append(attempts, time.Since(began).Truncate(time.Minute).String())
			return len(attempts) == 2, nil, errors.New("boom")
		})
		testutil.Start(t, w.Run)
		synctest.Wait()
		clock.Jump(jump)
		testutil.Pause(49 * time.Hour)
		testutil.Check(t, "attempts", []string{"0s", "24h0m0s", "24h0m0s", "48h0m0s"}, attempts)
	})
}

// TestRunAcrossAJump: the clock jumps over midnight after the survey. What is decided then
// goes by the day on which the run began.
func TestRunAcrossAJump(t *testing.T) {
	t.Parallel()
	beforeMidnight := time.Date(2023, 5, 10, 23, 30, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		reason string
		secret *corev1.Secret
		want   map[string]float64
	}{
		"ForwardMark":   {reason: "with the date of the beginning", secret: tokenSecret(), want: map[string]float64{"marked": 1}},
		"ForwardMarked": {reason: "it has not been marked for a whole period", secret: tokenSecret(invalidSince(cutoffDay))},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil, account(), tc.secret, tracking(longAgo))
			w.Clock.SetTime(beforeMidnight)
			testutil.Must(t, w.sync(t.Context(), wholeCluster))
			w.Clock.SetTime(beforeMidnight.Add(time.Hour))
			testutil.Must(t, w.sync(t.Context(), "ns"))
			testutil.Check(t, tc.reason, orNone(tc.want), w.Series(t, "sacm_legacy_token_cleanups_total"))
			if name == "ForwardMark" {
				testutil.Check(t, "mark", today, w.LiveSecret(t, "ns", "app-token").Labels[tokensecrets.InvalidSinceLabel])
			}
		})
	}
}

func TestClockDiffers(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	for name, tc := range map[string]struct {
		reason  string
		renewed []time.Duration // ago
		want    bool
	}{
		"NoNode":         {reason: "there is nothing to compare with"},
		"OneNode":        {reason: "it may be that of this process", renewed: []time.Duration{year}},
		"Right":          {renewed: []time.Duration{time.Second, 10 * time.Second, 5 * time.Second}},
		"Ahead":          {renewed: []time.Duration{year, year, year}, want: true},
		"Behind":         {renewed: []time.Duration{-year, -year, -year}, want: true},
		"LittleAhead":    {renewed: []time.Duration{time.Hour, time.Hour}},
		"OneDeadNode":    {renewed: []time.Duration{year, time.Second, time.Second}},
		"MostAreDead":    {reason: "nothing is known", renewed: []time.Duration{year, year, time.Second}, want: true},
		"OursIsOneOfTwo": {reason: "the other one has the right time", renewed: []time.Duration{0, year}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			var renewed []time.Time
			for _, ago := range tc.renewed {
				renewed = append(renewed, noon().Add(-ago))
			}
			testutil.Check(t, tc.reason, tc.want, clockDiffers(noon(), renewed))
		})
	}
}

func nodeLease(name string, renewed time.Time) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name},
		Spec:       coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: renewed}},
	}
}

// TestNothingIsDoneWithAWrongClock: a leader whose clock is a year ahead would have every token
// refused that was not used in the future.
func TestNothingIsDoneWithAWrongClock(t *testing.T) {
	t.Parallel()
	actual := noon().Add(-365 * 24 * time.Hour)
	objects := []runtime.Object{tracking("2020-01-01"), account(), tokenSecret(usedOn(actual.Format(dateFormat)))}
	w := newWorld(t, nil, append(objects, nodeLease("a", actual), nodeLease("b", actual))...)
	w.runOnce(t)
	testutil.Check(t, "decisions", map[string]float64{}, w.decisions(t))
	testutil.Check(t, "the reason is shown", 1.0, w.Series(t, "sacm_legacy_token_cleaner_idle")["clock-differs"])
}

const (
	listPods = "list pods"
	marked   = "patch secrets app-token [uid-app-token 20] kubernetes.io/legacy-token-invalid-since=2023-05-10"
	deleted  = "delete secrets app-token [uid-app-token 20]"
)

func dryRun(config *Config) { config.DryRun = true }
func auto(config *Config)   { config.Auto = true }

// replaced is an account with a Secret that was re-issued, as changes have it, and with
// its successor.
func replaced(changes ...func(*corev1.Secret)) []runtime.Object {
	return []runtime.Object{
		account(func(a *corev1.ServiceAccount) {
			a.Secrets = append([]corev1.ObjectReference{{Name: "new"}}, a.Secrets...)
		}),
		tokenSecret(append([]func(*corev1.Secret){autoCreated}, changes...)...),
		tokenSecret(renamed("new"), autoCreated, replacing("app-token")),
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	removed := []string{listPods, "get secrets app-token", "get serviceaccounts app", deleted}
	type (
		objects = []runtime.Object
		counts  = map[string]float64
	)
	marks, deletes := []string{"Normal LegacyTokenMarkedInvalid"}, []string{"Normal LegacyTokenDeleted"}
	tried, readsLive := []string{"Warning InvalidLegacyTokenTried"}, removed[:3]
	for name, tc := range map[string]struct {
		reason  string
		change  func(*Config)
		objects objects
		// live replaces objects that the caches have in an older state.
		live                    objects
		gone                    []string // Secrets that only the cache has
		wantActions, wantEvents []string
		note                    string // of the only Event, if it is given
		want                    counts
	}{
		"Mark": {
			objects: objects{account(), tokenSecret(usedOn("2023-01-05"))}, wantActions: []string{listPods, marked}, wantEvents: marks,
			want: counts{"mark": 1},
			note: `app-token: Normal LegacyTokenMarkedInvalid: the token of ServiceAccount "app" was not used for 720h0m0s (last use: ` +
				`2023-01-05), and no Pod uses the Secret: kube-apiserver refuses the token from now on, and the Secret is deleted after ` +
				`another 720h0m0s; removing the label kubernetes.io/legacy-token-invalid-since brings the token back; the annotation ` +
				`sa-controller-manager/keep=true keeps the Secret`,
		},
		"Delete": {
			reason: "one live read of each of the two it depends on", objects: objects{account(), tokenSecret(invalidSince(longAgo))},
			wantActions: removed, wantEvents: deletes, want: counts{"delete": 1},
		},
		"Mounted": {
			objects: objects{account(), tokenSecret(), mounting("app-token")}, wantActions: []string{listPods}, want: counts{"mounted": 1},
		},
		"NoCandidate": {
			reason: "no Pod is looked at in vain", objects: objects{account(), tokenSecret(usedOn(today))}, want: counts{"used": 1},
		},
		"Tried": {
			reason: "the operator will ask which client", objects: objects{account(), tokenSecret(usedOn(today), invalidSince(longAgo))},
			wantEvents: tried, want: counts{"tried-while-invalid": 1},
			note: `app-token: Warning InvalidLegacyTokenTried: a client still uses the token of ServiceAccount "app", which has been ` +
				`invalid since 2022-12-27, and was refused on 2023-05-10: give it another token, or remove the label ` +
				`kubernetes.io/legacy-token-invalid-since; the annotation sa-controller-manager/keep=true keeps the Secret`,
		},
		"DryRunMark": {
			change: dryRun, objects: objects{account(), tokenSecret()}, wantActions: []string{listPods},
			wantEvents: []string{"Normal LegacyTokenWouldBeMarked"}, want: counts{"mark": 1},
		},
		"DryRunDelete": {
			change: dryRun, objects: objects{account(), tokenSecret(invalidSince(longAgo))}, wantActions: readsLive,
			wantEvents: []string{"Normal LegacyTokenWouldBeDeleted"}, want: counts{"delete": 1},
			note: `app-token: Normal LegacyTokenWouldBeDeleted: the token of ServiceAccount "app" has been invalid since 2022-12-27 ` +
				`(last use: none): the Secret would be deleted, but for the dry run; the annotation sa-controller-manager/keep=true ` +
				`keeps the Secret`,
		},
		"AutoKeepsOne": {
			reason: "or Auto would create another one each time", change: auto, objects: objects{account(), tokenSecret()},
			want: counts{"own": 1},
		},
		"GoneMeanwhile": {
			objects: objects{account(), tokenSecret(invalidSince(longAgo))}, gone: []string{"app-token"}, wantActions: removed[:2],
			want: counts{"changed": 1},
		},
		"TriedMeanwhile": {
			reason: "the cache lags behind a use of the last seconds", objects: objects{account(), tokenSecret(invalidSince(longAgo))},
			live: objects{tokenSecret(invalidSince(longAgo), usedOn(today))}, wantActions: readsLive, wantEvents: tried,
			want: counts{"tried-while-invalid": 1},
		},
		"MarkTakenOffMeanwhile": {
			objects: objects{account(), tokenSecret(invalidSince(longAgo))}, live: objects{tokenSecret()}, wantActions: readsLive,
			want: counts{"changed": 1},
		},
		"MadeAnewMeanwhile": {
			objects: objects{account(), tokenSecret(invalidSince(longAgo))},
			live:    objects{tokenSecret(invalidSince(longAgo), func(s *corev1.Secret) { s.UID = "uid-new" })}, wantActions: removed[:2],
			want: counts{"changed": 1},
		},
		"DereferencedMeanwhile": {
			reason: "a person has made it a Secret of their own", objects: objects{account(), tokenSecret(invalidSince(longAgo))},
			live: objects{account(unreferencing)}, wantActions: readsLive, want: counts{"not-referenced": 1},
		},
		"ChangedWithoutMeaning": {
			reason: "the deletion is of what was read live", objects: objects{account(), tokenSecret(invalidSince(longAgo))},
			live:        objects{tokenSecret(invalidSince(longAgo), controllertest.AtVersion("21"))},
			wantActions: append(readsLive[:3:3], "delete secrets app-token [uid-app-token 21]"), wantEvents: deletes,
			want: counts{"delete": 1},
		},

		// What was re-issued needs no reference, and its successor stays.
		"ReplacedMark": {
			objects: replaced(usedOn(longAgo)), wantActions: []string{listPods, marked}, wantEvents: marks,
			want: counts{"mark": 1, "successor": 1},
		},
		"ReplacedAuto": {
			reason: "the successor is the account's own", change: auto, objects: replaced(usedOn(longAgo)),
			wantActions: []string{listPods, marked},
			wantEvents:  marks, want: counts{"mark": 1, "own": 1},
		},
		"ReplacedDelete": {
			reason: "the successor is read live, too", objects: replaced(invalidSince(longAgo)),
			wantActions: append(readsLive[:3:3], "get secrets new", deleted), wantEvents: deletes,
			want: counts{"delete": 1, "successor": 1},
		},
		"SuccessorGoneMeanwhile": {
			objects: replaced(invalidSince(longAgo)), gone: []string{"new"}, wantActions: append(readsLive[:3:3], "get secrets new"),
			want: counts{"changed": 1, "successor": 1},
		},
		"SuccessorMarkedMeanwhile": {
			objects:     replaced(invalidSince(longAgo)),
			live:        objects{tokenSecret(renamed("new"), autoCreated, replacing("app-token"), invalidSince(today))},
			wantActions: append(readsLive[:3:3], "get secrets new"), want: counts{"changed": 1, "successor": 1},
		},
		"WithoutReissue": {
			reason: "nothing says that it was replaced", change: func(config *Config) { config.Replacements = nil },
			objects: append(replaced(usedOn(longAgo))[1:], account(unreferencing, referencing("new"))),
			want:    counts{"not-referenced": 1, "successor": 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.change, append(tc.objects, tracking(longAgo))...)
			w.Live(t, tc.live...)
			for _, name := range tc.gone {
				w.Delete(t, tokenSecret(renamed(name)))
			}
			w.runOnce(t)
			testutil.Check(t, tc.reason+": actions", tc.wantActions, w.actions(t))
			testutil.Check(t, tc.reason+": events", tc.wantEvents, w.Events())
			testutil.Check(t, tc.reason+": decisions", tc.want, w.decisions(t))
			if tc.note != "" {
				testutil.Check(t, tc.reason+": note", []string{tc.note}, w.Recorded.Lines())
			}
			done := map[string]float64{}
			for _, action := range tc.wantActions {
				switch verb, _, _ := strings.Cut(action, " "); verb {
				case "patch":
					done["marked"] = 1
				case "delete":
					done["deleted"] = 1
				}
			}
			testutil.Check(t, tc.reason+": done", done, w.Series(t, "sacm_legacy_token_cleanups_total"))
			testutil.Check(t, "the last run", float64(noon().Unix()),
				w.Series(t, "sacm_legacy_token_cleaner_last_run_timestamp_seconds")[""])
		})
	}
}

func orNone(values map[string]float64) map[string]float64 {
	if values == nil {
		return map[string]float64{}
	}
	return values
}
