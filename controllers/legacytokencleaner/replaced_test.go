// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package legacytokencleaner

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/controllers/tokensecrets"
)

const week = 7 * 24 * time.Hour

func weekly(config *Config) { config.ReplacedPeriod = week }

func aWeekly(config *Config) { config.ReplacedPeriod, config.Auto = week, true }

func replacing(name string) func(*corev1.Secret) {
	return annotated(tokensecrets.ReplacesAnnotation, tokensecrets.Predecessor{Name: name, UID: types.UID("uid-token")}.String())
}

// replaced is an account with a Secret that was re-issued, as changes have it, and with
// its successor.
func replaced(changes ...func(*corev1.Secret)) []runtime.Object {
	return []runtime.Object{
		account(func(a *corev1.ServiceAccount) {
			a.Secrets = append([]corev1.ObjectReference{{Name: "new"}}, a.Secrets...)
		}),
		tokenSecret(append([]func(*corev1.Secret){autoCreated}, changes...)...),
		tokenSecret(renamed("new"), autoCreated, replacing("app-token"), func(s *corev1.Secret) { s.UID = "uid-new" }),
	}
}

// TestNoRoundIsIdleThatCleans: use was tracked for one of the two periods only.
func TestNoRoundIsIdleThatCleans(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		change  func(*Config)
		objects []runtime.Object
	}{
		"Replaced": {change: weekly, objects: replaced(usedOn("2023-04-30"))},
		"Others": {
			change:  func(config *Config) { config.Period, config.ReplacedPeriod = week, testPeriod },
			objects: []runtime.Object{account(), tokenSecret(usedOn("2023-04-30"))},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, tc.change, append(tc.objects, tracking("2023-05-01"))...)
			if err := w.runRound(t); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{listPods, marked}, w.actions(t)); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(map[string]float64{}, w.Series(t, "sacm_legacy_token_cleaner_idle")); diff != "" {
				t.Errorf("idle (-want +got):\n%s", diff)
			}
		})
	}
}

// TestReplaced: what was re-issued has a period of its own, and its successor stays.
func TestReplaced(t *testing.T) {
	t.Parallel()
	const tenDaysAgo = "2023-04-30"
	cases := map[string]struct {
		reason      string
		change      func(*Config)
		objects     []runtime.Object
		since       string // of the tracking
		live        []runtime.Object
		gone        []string
		wantActions []string
		want        map[string]float64
	}{
		"UnusedForItsPeriod": {
			change: weekly, objects: replaced(usedOn(tenDaysAgo)), since: longAgo,
			wantActions: []string{listPods, marked}, want: map[string]float64{"mark": 1, "successor": 1},
		},
		"SamePeriodByDefault": {
			reason:  "ten days are not enough then",
			objects: replaced(usedOn(tenDaysAgo)), since: longAgo, want: map[string]float64{"used": 1, "successor": 1},
		},
		"UsedThisWeek": {change: weekly, objects: replaced(usedOn("2023-05-05")), since: longAgo, want: map[string]float64{"used": 1, "successor": 1}},
		"Mounted": {
			change: weekly, objects: append(replaced(usedOn(tenDaysAgo)), mounting("app-token")), since: longAgo,
			wantActions: []string{listPods}, want: map[string]float64{"mounted": 1, "successor": 1},
		},
		"Auto": {
			reason: "the successor is the account's own", change: aWeekly, objects: replaced(usedOn(tenDaysAgo)), since: longAgo,
			wantActions: []string{listPods, marked}, want: map[string]float64{"mark": 1, "own": 1},
		},
		"TrackedForItsPeriodOnly": {
			reason: "what was not replaced has to wait", change: weekly, objects: replaced(usedOn(tenDaysAgo)), since: "2023-05-01",
			wantActions: []string{listPods, marked}, want: map[string]float64{"mark": 1},
		},
		"TrackedForADay": {change: weekly, objects: replaced(usedOn(tenDaysAgo)), since: "2023-05-09", want: map[string]float64{}},
		"Marked":         {change: weekly, objects: replaced(invalidSince("2023-05-05")), since: longAgo, want: map[string]float64{"marked": 1, "successor": 1}},
		"Tried": {
			change: weekly, objects: replaced(invalidSince(tenDaysAgo), usedOn("2023-05-09")), since: longAgo,
			want: map[string]float64{"tried-while-invalid": 1, "successor": 1},
		},
		"Delete": {
			reason: "the successor is read live, too",
			change: weekly, objects: replaced(invalidSince(tenDaysAgo)), since: longAgo,
			wantActions: []string{listPods, "get secrets ns/app-token", "get serviceaccounts ns/app", "get secrets ns/new", deleted},
			want:        map[string]float64{"delete": 1, "successor": 1},
		},
		"SuccessorGoneMeanwhile": {
			change: weekly, objects: replaced(invalidSince(tenDaysAgo)), since: longAgo, gone: []string{"new"},
			wantActions: []string{listPods, "get secrets ns/app-token", "get serviceaccounts ns/app", "get secrets ns/new"},
			want:        map[string]float64{"changed": 1, "successor": 1},
		},
		"SuccessorMarkedMeanwhile": {
			change: weekly, objects: replaced(invalidSince(tenDaysAgo)), since: longAgo,
			live:        []runtime.Object{tokenSecret(renamed("new"), autoCreated, replacing("app-token"), invalidSince(today), func(s *corev1.Secret) { s.UID = "uid-new" })},
			wantActions: []string{listPods, "get secrets ns/app-token", "get serviceaccounts ns/app", "get secrets ns/new"},
			want:        map[string]float64{"changed": 1, "successor": 1},
		},
		"NeverToBeReplaced": {
			reason: "whatever the other says", change: weekly, objects: replaced(usedOn(tenDaysAgo), annotated(tokensecrets.ReissueAnnotation, "never")),
			since: longAgo, want: map[string]float64{"used": 1, "successor": 1},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, tc.change, append(tc.objects, tracking(tc.since))...)
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
			if diff := cmp.Diff(tc.want, w.decisions(t)); diff != "" {
				t.Errorf("%s\ndecisions (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
