// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package legacytokencleaner

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"sa-controller-manager/controllers/tokensecrets"
)

const week = 7 * 24 * time.Hour

func weekly(config *Config) { config.Period = week }

func aWeekly(config *Config) { config.Period, config.Auto = week, true }

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

// TestReplaced: what was re-issued needs no reference, and its successor stays.
func TestReplaced(t *testing.T) {
	t.Parallel()
	const tenDaysAgo = "2023-04-30"
	marks := []string{"Normal LegacyTokenMarkedInvalid"}
	checkRuns(t, map[string]runCase{
		"UnusedForItsPeriod": {
			change: weekly, objects: replaced(usedOn(tenDaysAgo)),
			wantActions: []string{listPods, marked}, wantEvents: marks, want: map[string]float64{"mark": 1, "successor": 1},
		},
		"SamePeriodAsOthers": {
			reason:  "ten days are not enough",
			objects: replaced(usedOn(tenDaysAgo)), want: map[string]float64{"used": 1, "successor": 1},
		},
		"UsedThisWeek": {change: weekly, objects: replaced(usedOn("2023-05-05")), want: map[string]float64{"used": 1, "successor": 1}},
		"Mounted": {
			change: weekly, objects: append(replaced(usedOn(tenDaysAgo)), mounting("app-token")),
			wantActions: []string{listPods}, want: map[string]float64{"mounted": 1, "successor": 1},
		},
		"Auto": {
			reason: "the successor is the account's own", change: aWeekly, objects: replaced(usedOn(tenDaysAgo)),
			wantActions: []string{listPods, marked}, wantEvents: marks, want: map[string]float64{"mark": 1, "own": 1},
		},
		"TrackedForADay": {
			change: weekly, objects: replaced(usedOn(tenDaysAgo)), since: "2023-05-09", idle: map[string]float64{"tracking-too-short": 1},
		},
		"Marked": {change: weekly, objects: replaced(invalidSince("2023-05-05")), want: map[string]float64{"marked": 1, "successor": 1}},
		"Tried": {
			change: weekly, objects: replaced(invalidSince(tenDaysAgo), usedOn("2023-05-09")),
			wantEvents: []string{"Warning InvalidLegacyTokenTried"}, want: map[string]float64{"tried-while-invalid": 1, "successor": 1},
		},
		"Delete": {
			reason: "the successor is read live, too",
			change: weekly, objects: replaced(invalidSince(tenDaysAgo)),
			wantActions: []string{listPods, "get secrets app-token", "get serviceaccounts app", "get secrets new", deleted},
			wantEvents:  []string{"Normal LegacyTokenDeleted"}, want: map[string]float64{"delete": 1, "successor": 1},
		},
		"SuccessorGoneMeanwhile": {
			change: weekly, objects: replaced(invalidSince(tenDaysAgo)), gone: []string{"new"},
			wantActions: []string{listPods, "get secrets app-token", "get serviceaccounts app", "get secrets new"},
			want:        map[string]float64{"changed": 1, "successor": 1},
		},
		"SuccessorMarkedMeanwhile": {
			change: weekly, objects: replaced(invalidSince(tenDaysAgo)),
			live:        []runtime.Object{tokenSecret(renamed("new"), autoCreated, replacing("app-token"), invalidSince(today))},
			wantActions: []string{listPods, "get secrets app-token", "get serviceaccounts app", "get secrets new"},
			want:        map[string]float64{"changed": 1, "successor": 1},
		},
		"NeverToBeReplaced": {
			reason: "whatever the other says: without a reference it stays", change: weekly,
			objects: append(replaced(usedOn(tenDaysAgo), annotated(tokensecrets.ReissueAnnotation, "never"))[1:],
				account(unreferencing, referencing("new"))),
			want: map[string]float64{"not-referenced": 1, "successor": 1},
		},
		"WithoutReissue": {
			reason: "nothing says that it was replaced", change: func(config *Config) { config.Period, config.Replacements = week, nil },
			objects: append(replaced(usedOn(tenDaysAgo))[1:], account(unreferencing, referencing("new"))),
			want:    map[string]float64{"not-referenced": 1, "successor": 1},
		},
		"AutoWithoutReissue": {
			reason: "the older one is the account's own", change: func(config *Config) { aWeekly(config); config.Replacements = nil },
			objects: replaced(usedOn(tenDaysAgo)), want: map[string]float64{"own": 1, "successor": 1},
		},
	})
}
