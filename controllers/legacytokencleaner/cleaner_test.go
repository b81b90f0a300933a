// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package legacytokencleaner

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"sa-controller-manager/controllers/tokensecrets"
)

const (
	listPods = `list pods ns/ limit 500 continue ""`
	marked   = "patch secrets ns/app-token map[metadata:map[labels:map[kubernetes.io/legacy-token-invalid-since:2023-05-10] resourceVersion:20 uid:uid-token]]"
	deleted  = "delete secrets ns/app-token [uid-token 20]"
)

func dryRun(config *Config) { config.DryRun = true }
func auto(config *Config)   { config.Auto = true }

func TestRound(t *testing.T) {
	t.Parallel()
	removed := []string{listPods, "get secrets ns/app-token", "get serviceaccounts ns/app", deleted}
	cases := map[string]struct {
		reason  string
		change  func(*Config)
		objects []runtime.Object
		// live replaces objects that the caches have in an older state.
		live        []runtime.Object
		gone        []string // Secrets that only the cache has
		wantActions []string
		wantEvents  []string
		want        map[string]float64
	}{
		"Mark": {
			objects:     []runtime.Object{account(), tokenSecret()},
			wantActions: []string{listPods, marked},
			wantEvents:  []string{"Normal LegacyTokenMarkedInvalid"},
			want:        map[string]float64{"mark": 1},
		},
		"Delete": {
			reason:      "one live look at each of the two it depends on",
			objects:     []runtime.Object{account(), tokenSecret(invalidSince(longAgo))},
			wantActions: removed,
			wantEvents:  []string{"Normal LegacyTokenDeleted"},
			want:        map[string]float64{"delete": 1},
		},
		"Mounted": {
			objects:     []runtime.Object{account(), tokenSecret(), mounting("app-token")},
			wantActions: []string{listPods},
			want:        map[string]float64{"mounted": 1},
		},
		"MountedAndMarked": {
			objects:     []runtime.Object{account(), tokenSecret(invalidSince(longAgo)), mounting("app-token")},
			wantActions: []string{listPods},
			want:        map[string]float64{"mounted": 1},
		},
		"MountedElsewhere": {
			reason: "another namespace has Secrets of its own",
			objects: []runtime.Object{account(), tokenSecret(), func() *corev1.Pod {
				pod := mounting("app-token")
				pod.Namespace = "elsewhere"
				return pod
			}()},
			wantActions: []string{listPods, marked},
			wantEvents:  []string{"Normal LegacyTokenMarkedInvalid"},
			want:        map[string]float64{"mark": 1},
		},
		"NoCandidate": {
			reason:  "no Pod is looked at in vain",
			objects: []runtime.Object{account(), tokenSecret(usedOn(today))},
			want:    map[string]float64{"used": 1},
		},
		"Tried": {
			reason:     "somebody will call: tell who",
			objects:    []runtime.Object{account(), tokenSecret(usedOn(today), invalidSince(longAgo))},
			wantEvents: []string{"Warning InvalidLegacyTokenTried"},
			want:       map[string]float64{"tried-while-invalid": 1},
		},
		"DryRunMark": {
			change:      dryRun,
			objects:     []runtime.Object{account(), tokenSecret()},
			wantActions: []string{listPods},
			wantEvents:  []string{"Normal LegacyTokenWouldBeMarked"},
			want:        map[string]float64{"mark": 1},
		},
		"DryRunDelete": {
			change:      dryRun,
			objects:     []runtime.Object{account(), tokenSecret(invalidSince(longAgo))},
			wantActions: removed[:3],
			wantEvents:  []string{"Normal LegacyTokenWouldBeDeleted"},
			want:        map[string]float64{"delete": 1},
		},
		"AutoKeepsOne": {
			reason:  "or Auto would create another one each time",
			change:  auto,
			objects: []runtime.Object{account(), tokenSecret()},
			want:    map[string]float64{"own": 1},
		},
		"AutoKeepsOnlyOne": {
			change: auto,
			objects: []runtime.Object{
				account(func(a *corev1.ServiceAccount) { a.Secrets = append(a.Secrets, corev1.ObjectReference{Name: "ours"}) }),
				tokenSecret(), tokenSecret(renamed("ours"), autoCreated),
			},
			wantActions: []string{listPods, marked},
			wantEvents:  []string{"Normal LegacyTokenMarkedInvalid"},
			want:        map[string]float64{"mark": 1, "own": 1},
		},
		"AutoAndMarked": {
			reason:      "what is marked cannot be the account's own: Auto has made another one",
			change:      auto,
			objects:     []runtime.Object{account(), tokenSecret(autoCreated, invalidSince(longAgo))},
			wantActions: removed,
			wantEvents:  []string{"Normal LegacyTokenDeleted"},
			want:        map[string]float64{"delete": 1},
		},
		"NotAuto": {
			reason:      "in mode manual our marker means nothing",
			objects:     []runtime.Object{account(), tokenSecret(autoCreated)},
			wantActions: []string{listPods, marked},
			wantEvents:  []string{"Normal LegacyTokenMarkedInvalid"},
			want:        map[string]float64{"mark": 1},
		},
		"GoneMeanwhile": {
			objects:     []runtime.Object{account(), tokenSecret(invalidSince(longAgo))},
			gone:        []string{"app-token"},
			wantActions: removed[:2],
			want:        map[string]float64{"changed": 1},
		},
		"TriedMeanwhile": {
			reason:      "the cache lags behind a use of the last seconds",
			objects:     []runtime.Object{account(), tokenSecret(invalidSince(longAgo))},
			live:        []runtime.Object{tokenSecret(invalidSince(longAgo), usedOn(today))},
			wantActions: removed[:3],
			wantEvents:  []string{"Warning InvalidLegacyTokenTried"},
			want:        map[string]float64{"tried-while-invalid": 1},
		},
		"MarkTakenOffMeanwhile": {
			objects:     []runtime.Object{account(), tokenSecret(invalidSince(longAgo))},
			live:        []runtime.Object{tokenSecret()},
			wantActions: removed[:3],
			want:        map[string]float64{"changed": 1},
		},
		"OptedOutMeanwhile": {
			objects:     []runtime.Object{account(), tokenSecret(invalidSince(longAgo))},
			live:        []runtime.Object{tokenSecret(invalidSince(longAgo), annotated(tokensecrets.KeepAnnotation, "true"))},
			wantActions: removed[:3],
			want:        map[string]float64{"opted-out": 1},
		},
		"MadeAnewMeanwhile": {
			objects: []runtime.Object{account(), tokenSecret(invalidSince(longAgo))},
			live: []runtime.Object{tokenSecret(invalidSince(longAgo), func(s *corev1.Secret) {
				s.UID = "uid-new"
			})},
			wantActions: removed[:2],
			want:        map[string]float64{"changed": 1},
		},
		"DereferencedMeanwhile": {
			reason:      "a person has made it a Secret of their own",
			objects:     []runtime.Object{account(), tokenSecret(invalidSince(longAgo))},
			live:        []runtime.Object{account(func(a *corev1.ServiceAccount) { a.Secrets = nil })},
			wantActions: removed[:3],
			want:        map[string]float64{"not-referenced": 1},
		},
		"AccountMadeAnewMeanwhile": {
			objects:     []runtime.Object{account(), tokenSecret(invalidSince(longAgo))},
			live:        []runtime.Object{account(func(a *corev1.ServiceAccount) { a.UID = "uid-new" })},
			wantActions: removed[:3],
			want:        map[string]float64{"no-account": 1},
		},
		"ChangedWithoutMeaning": {
			reason:      "the deletion is of what was read live",
			objects:     []runtime.Object{account(), tokenSecret(invalidSince(longAgo))},
			live:        []runtime.Object{tokenSecret(invalidSince(longAgo), func(s *corev1.Secret) { s.ResourceVersion = "21" })},
			wantActions: append(removed[:3:3], "delete secrets ns/app-token [uid-token 21]"),
			wantEvents:  []string{"Normal LegacyTokenDeleted"},
			want:        map[string]float64{"delete": 1},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, tc.change, append(tc.objects, tracking(longAgo))...)
			for _, object := range tc.live {
				w.replace(t, object)
			}
			for _, name := range tc.gone {
				w.forget(t, name)
			}
			w.Client.ClearActions()
			if err := w.runRound(t); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.wantActions, w.actions(t)); diff != "" {
				t.Errorf("%s\nactions (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.wantEvents, w.Events()); diff != "" {
				t.Errorf("%s\nevents (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.want, w.decisions(t)); diff != "" {
				t.Errorf("%s\ndecisions (-want +got):\n%s", tc.reason, diff)
			}
			done := map[string]float64{}
			if len(tc.wantActions) > 0 && strings.HasPrefix(tc.wantActions[len(tc.wantActions)-1], "patch") {
				done["marked"] = 1
			}
			if len(tc.wantActions) > 0 && strings.HasPrefix(tc.wantActions[len(tc.wantActions)-1], "delete") {
				done["deleted"] = 1
			}
			if diff := cmp.Diff(done, w.Series(t, "sacm_legacy_token_cleanups_total")); diff != "" {
				t.Errorf("%s\ndone (-want +got):\n%s", tc.reason, diff)
			}
			if got := w.Series(t, "sacm_legacy_token_cleaner_last_run_timestamp_seconds")[""]; got != float64(noon().Unix()) {
				t.Errorf("the last run was at %v, want %v", got, noon().Unix())
			}
		})
	}
}

// replace makes the API's state newer than the cache's.
func (w *world) replace(t *testing.T, object runtime.Object) {
	t.Helper()
	if err := w.Client.Tracker().Update(resourceOf(object), object, "ns"); err != nil {
		t.Fatal(err)
	}
}

func (w *world) forget(t *testing.T, secret string) {
	t.Helper()
	if err := w.Client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("secrets"), "ns", secret); err != nil {
		t.Fatal(err)
	}
}

func resourceOf(object runtime.Object) schema.GroupVersionResource {
	resource := "secrets"
	if _, ok := object.(*corev1.ServiceAccount); ok {
		resource = "serviceaccounts"
	}
	return corev1.SchemeGroupVersion.WithResource(resource)
}

// TestIdle has the rows of upstream's test that are about the ConfigMap.
func TestIdle(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason   string
		tracking []runtime.Object
		want     map[string]float64
	}{
		"Absent":  {want: map[string]float64{"tracking-absent": 1}},
		"Empty":   {tracking: []runtime.Object{tracking("")}, want: map[string]float64{"tracking-invalid": 1}},
		"Garbage": {tracking: []runtime.Object{tracking("yesterday")}, want: map[string]float64{"tracking-invalid": 1}},
		"Short":   {tracking: []runtime.Object{tracking("2023-05-01")}, want: map[string]float64{"tracking-too-short": 1}},
		"Works":   {tracking: []runtime.Object{tracking(longAgo)}, want: map[string]float64{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil, append(tc.tracking, account(), tokenSecret(), tokenSecret(renamed("old"), invalidSince(longAgo)))...)
			if err := w.runRound(t); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, w.Series(t, "sacm_legacy_token_cleaner_idle")); diff != "" {
				t.Errorf("%s\nidle (-want +got):\n%s", tc.reason, diff)
			}
			if idle, acted := len(tc.want) > 0, len(w.actions(t)) > 0; idle == acted {
				t.Errorf("idle: %v, acted: %v", idle, acted)
			}
		})
	}
}

// TestWhatHoldsARoundIsForgotten: a reason to be idle, and the counts of a round, are
// those of the last round only.
func TestWhatHoldsARoundIsForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, account(), tokenSecret())
	if err := w.runRound(t); err != nil {
		t.Fatal(err)
	}
	if err := w.Client.Tracker().Add(tracking(longAgo)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := w.runRound(t); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(map[string]float64{}, w.Series(t, "sacm_legacy_token_cleaner_idle")); diff != "" {
		t.Errorf("idle (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]float64{"mark": 1}, w.decisions(t)); diff != "" {
		t.Errorf("decisions (-want +got):\n%s", diff)
	}
}

func refuse(status *apierrors.StatusError) clienttesting.ReactionFunc {
	return func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, status }
}

func TestARefusingAPI(t *testing.T) {
	t.Parallel()
	secrets := schema.GroupResource{Resource: "secrets"}
	forbidden := apierrors.NewForbidden(secrets, "app-token", errors.New("no"))
	conflict := apierrors.NewConflict(secrets, "app-token", errors.New("changed"))
	notFound := apierrors.NewNotFound(secrets, "app-token")
	cases := map[string]struct {
		reason         string
		verb, resource string
		answer         *apierrors.StatusError
		marked         bool
		want           string // the error; "" if there is none
		decisions      map[string]float64
	}{
		"Tracking": {
			verb: "get", resource: "configmaps", answer: forbidden,
			want: `look up since when legacy tokens are tracked, in config map kube-system/kube-apiserver-legacy-service-account-token-tracking: secrets "app-token" is forbidden: no`,
		},
		"Pods": {
			reason: "what cannot be looked at may be mounted",
			verb:   "list", resource: "pods", answer: forbidden, marked: true,
			want: `list pods of namespace "ns": secrets "app-token" is forbidden: no`,
		},
		"MarkConflict": {verb: "patch", resource: "secrets", answer: conflict, decisions: map[string]float64{"changed": 1}},
		"MarkGone":     {verb: "patch", resource: "secrets", answer: notFound, decisions: map[string]float64{"changed": 1}},
		"Mark": {
			verb: "patch", resource: "secrets", answer: forbidden,
			want: "mark token secret ns/app-token invalid: kube-apiserver answered 403 Forbidden; its audit log has the text, which may quote the Secret",
		},
		"LiveSecret": {
			verb: "get", resource: "secrets", answer: forbidden, marked: true,
			want: `look up secret ns/app-token: secrets "app-token" is forbidden: no`,
		},
		"LiveAccount": {
			verb: "get", resource: "serviceaccounts", answer: forbidden, marked: true,
			want: `look up service account ns/app: secrets "app-token" is forbidden: no`,
		},
		"DeleteConflict": {verb: "delete", resource: "secrets", answer: conflict, marked: true, decisions: map[string]float64{"changed": 1}},
		"DeleteGone":     {verb: "delete", resource: "secrets", answer: notFound, marked: true, decisions: map[string]float64{"changed": 1}},
		"Delete": {
			verb: "delete", resource: "secrets", answer: forbidden, marked: true,
			want: "delete token secret ns/app-token: kube-apiserver answered 403 Forbidden; its audit log has the text, which may quote the Secret",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			secret := tokenSecret()
			if tc.marked {
				invalidSince(longAgo)(secret)
			}
			w := newWorld(t, nil, account(), secret, tracking(longAgo))
			w.Client.PrependReactor(tc.verb, tc.resource, refuse(tc.answer))
			got := ""
			if err := w.runRound(t); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nerror (-want +got):\n%s", tc.reason, diff)
			}
			want := tc.decisions
			if want == nil {
				want = map[string]float64{}
			}
			if diff := cmp.Diff(want, w.decisions(t)); diff != "" {
				t.Errorf("decisions (-want +got):\n%s", diff)
			}
			if events := w.Events(); len(events) > 0 {
				t.Errorf("told what was not done: %q", events)
			}
			if over := len(w.Series(t, "sacm_legacy_token_cleaner_last_run_timestamp_seconds")) > 0; over != (tc.want == "") {
				t.Errorf("the round is over: %v", over)
			}
		})
	}
}

// TestOneFailureHoldsUpNoOther: what has been done in a namespace is not done again
// because of what could not be.
func TestOneFailureHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, tracking(longAgo), tokenSecret(), tokenSecret(renamed("second")),
		account(func(a *corev1.ServiceAccount) { a.Secrets = append(a.Secrets, corev1.ObjectReference{Name: "second"}) }))
	fails := true
	w.Client.PrependReactor("patch", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if fails && action.(clienttesting.PatchActionImpl).Name == "app-token" {
			return true, nil, apierrors.NewGenericServerResponse(http.StatusInternalServerError, "patch", schema.GroupResource{}, "", "", 0, true)
		}
		return false, nil, nil
	})
	if err := w.runRound(t); err == nil {
		t.Fatal("no error")
	}
	if diff := cmp.Diff(map[string]float64{"mark": 1}, w.decisions(t)); diff != "" {
		t.Errorf("after the first try, decisions (-want +got):\n%s", diff)
	}
	fails = false
	w.actions(t)
	if err := w.sync(t.Context(), "ns"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{listPods, marked}, w.actions(t)); diff != "" {
		t.Errorf("the second try (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]float64{"mark": 2}, w.decisions(t)); diff != "" {
		t.Errorf("decisions (-want +got):\n%s", diff)
	}
	// A namespace that comes up once more has nothing left.
	if err := w.sync(t.Context(), "ns"); err != nil || len(w.actions(t)) > 0 {
		t.Errorf("%v, or something was done", err)
	}
}

// TestRestartsDoNothingTwice is why no state is kept: another process, or this one a
// moment later, finds on the Secrets what has been done. Case 48.
func TestRestartsDoNothingTwice(t *testing.T) {
	t.Parallel()
	first := newWorld(t, nil, account(), tokenSecret(), tracking(longAgo))
	if err := first.runRound(t); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{listPods, marked}, first.actions(t)); diff != "" {
		t.Fatalf("the first round (-want +got):\n%s", diff)
	}
	for days := range 31 {
		secret, err := first.Client.CoreV1().Secrets("ns").Get(t.Context(), "app-token", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		next := newWorld(t, nil, account(), secret, tracking(longAgo))
		next.Clock.SetTime(noon().AddDate(0, 0, days))
		for range 2 {
			if err := next.runRound(t); err != nil {
				t.Fatal(err)
			}
		}
		if acts := next.actions(t); len(acts) > 0 {
			t.Fatalf("%d days after the mark: %q", days, acts)
		}
		if days < 30 {
			continue
		}
		next.Clock.SetTime(noon().AddDate(0, 0, days+1))
		if err := next.runRound(t); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]float64{"deleted": 1}, next.Series(t, "sacm_legacy_token_cleanups_total")); diff != "" {
			t.Errorf("%d days after the mark (-want +got):\n%s", days+1, diff)
		}
	}
}

// TestNothingIsWrittenFromAnOldVersion: a leader whose cache lags behind what its
// predecessor wrote says from which version it has decided, and is refused.
func TestNothingIsWrittenFromAnOldVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, account(), tokenSecret(), tracking(longAgo))
	for range 2 { // the cache is not told of the first write
		if err := w.runRound(t); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{listPods, marked, listPods, marked}, w.actions(t)); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
}

// TestSchedule: a round at the start, one every 24 hours, and retries between.
func TestSchedule(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(c *Config) { c.Clock = clock.RealClock{} }, tracking(longAgo), account(), tokenSecret(usedOn("9999-01-01")))
		began := time.Now()
		var looks []string
		w.Client.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			looks = append(looks, time.Since(began).Truncate(time.Minute).String())
			if len(looks) == 2 {
				return true, nil, apierrors.NewInternalError(errors.New("boom"))
			}
			return false, nil, nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		time.Sleep(49 * time.Hour)
		synctest.Wait()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff([]string{"0s", "24h0m0s", "24h0m0s", "48h0m0s"}, looks); diff != "" {
			t.Errorf("looks (-want +got):\n%s", diff)
		}
	})
}

// TestRunCleans has the loop do what other tests do by hand. In a bubble it is the
// year 2000.
func TestRunCleans(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		created := time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC)
		w := newWorld(t, func(c *Config) { c.Clock = clock.RealClock{} },
			tracking("1990-01-01"), account(), tokenSecret(createdAt(created), invalidSince("1995-01-01")))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		synctest.Wait()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff([]string{listPods, "get secrets ns/app-token", "get serviceaccounts ns/app", deleted}, w.actions(t)); diff != "" {
			t.Errorf("actions (-want +got):\n%s", diff)
		}
	})
}

// TestWhoLedShowsNothing: another process leads by now, whose rounds count.
func TestWhoLedShowsNothing(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		since, series string
		want          map[string]float64
	}{
		"Secrets": {since: "1990-01-01", series: "sacm_legacy_token_cleaner_secrets", want: map[string]float64{"tried-while-invalid": 1}},
		"Idle":    {since: "1999-12-31", series: "sacm_legacy_token_cleaner_idle", want: map[string]float64{"tracking-too-short": 1}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				created := time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC)
				w := newWorld(t, func(c *Config) { c.Clock = clock.RealClock{} },
					tracking(tc.since), account(), tokenSecret(createdAt(created), invalidSince("1995-01-01"), usedOn("2000-01-01")))
				for range 2 { // terms
					ctx, cancel := context.WithCancel(t.Context())
					ended := make(chan error)
					go func() { ended <- w.Run(ctx) }()
					synctest.Wait()
					if diff := cmp.Diff(tc.want, w.Series(t, tc.series)); diff != "" {
						t.Errorf("while it leads (-want +got):\n%s", diff)
					}
					cancel()
					if err := <-ended; err != nil {
						t.Error(err)
					}
					if diff := cmp.Diff(map[string]float64{}, w.Series(t, tc.series)); diff != "" {
						t.Errorf("afterwards (-want +got):\n%s", diff)
					}
				}
			})
		})
	}
}

// TestNotesSayWhatToDo looks at every note.
func TestNotesSayWhatToDo(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		change func(*Config)
		secret *corev1.Secret
		want   string
	}{
		"Marked": {
			secret: tokenSecret(usedOn("2023-01-05")),
			want: `Normal LegacyTokenMarkedInvalid the token of ServiceAccount "app" was not used for 720h0m0s (last use: 2023-01-05), and no Pod uses the Secret: ` +
				`kube-apiserver refuses the token from now on, and the Secret is deleted after another 720h0m0s; removing the label ` +
				`kubernetes.io/legacy-token-invalid-since brings the token back; the annotation sa-controller-manager/keep=true keeps the Secret`,
		},
		"WouldMark": {
			change: dryRun, secret: tokenSecret(),
			want: `Normal LegacyTokenWouldBeMarked the token of ServiceAccount "app" was not used for 720h0m0s (last use: none), and no Pod uses the Secret: ` +
				`it would be marked invalid, but for the dry run; the annotation sa-controller-manager/keep=true keeps the Secret`,
		},
		"Deleted": {
			secret: tokenSecret(invalidSince(longAgo)),
			want:   `Normal LegacyTokenDeleted deleted: the token of ServiceAccount "app" has been invalid since 2022-12-27 (last use: none)`,
		},
		"WouldDelete": {
			change: dryRun, secret: tokenSecret(invalidSince(longAgo)),
			want: `Normal LegacyTokenWouldBeDeleted the token of ServiceAccount "app" has been invalid since 2022-12-27 (last use: none): ` +
				`the Secret would be deleted, but for the dry run; the annotation sa-controller-manager/keep=true keeps the Secret`,
		},
		"Tried": {
			secret: tokenSecret(invalidSince(longAgo), usedOn(today)),
			want: `Warning InvalidLegacyTokenTried a client still uses the token of ServiceAccount "app", which has been invalid since 2022-12-27, ` +
				`and was refused on 2023-05-10: give it another token, or remove the label kubernetes.io/legacy-token-invalid-since; ` +
				`the annotation sa-controller-manager/keep=true keeps the Secret`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, tc.change, account(), tc.secret, tracking(longAgo))
			if err := w.runRound(t); err != nil {
				t.Fatal(err)
			}
			got := "nothing"
			select {
			case got = <-w.Recorded.Events:
			default:
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("note (-want +got):\n%s", diff)
			}
		})
	}
}
