// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package legacytokencleaner

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/controllers/tokensecrets"
)

// TestPlan has every row of upstream's TestLegacyServiceAccountTokenCleanUp that is
// about a Secret, named as there or nearly so, and the edges between the rows.
func TestPlan(t *testing.T) {
	t.Parallel()
	const yesterday = "2023-04-09" // of the cutoff
	cutoff := noon().Add(-testPeriod)
	cases := map[string]struct {
		reason       string
		secret       *corev1.Secret
		account      *corev1.ServiceAccount
		own, mounted bool
		successor    *corev1.Secret
		predecessor  bool
		want         decision
	}{
		"NotUsedNotMarked":     {secret: tokenSecret(), account: account(), want: mark},
		"UsedLongAgoNotMarked": {secret: tokenSecret(usedOn(longAgo)), account: account(), want: mark},
		"LateCreationTime":     {secret: tokenSecret(usedOn(longAgo), createdAt(noon().AddDate(0, 0, -3))), account: account(), want: keepYoung},
		"DeletionTime":         {secret: tokenSecret(usedOn(longAgo), terminating), account: account(), want: keepTerminating},
		"LateLastUse":          {secret: tokenSecret(usedOn("2023-05-01")), account: account(), want: keepUsed},
		"LastUseIsNoDate":      {secret: tokenSecret(usedOn("2022-12-27-1")), account: account(), want: keepUnreadable},
		"NoAccount":            {secret: tokenSecret(), want: keepNoAccount},
		"AccountHasAnotherUID": {
			secret: tokenSecret(annotated(corev1.ServiceAccountUIDKey, "uid-before")), account: account(), want: keepNoAccount,
		},
		"AccountNameIsEmpty": {
			secret: tokenSecret(annotated(corev1.ServiceAccountNameKey, "")), account: account(), want: keepNoAccount,
		},
		"UIDIsNotAnnotated": {
			reason: "upstream takes the name for enough then",
			secret: tokenSecret(annotated(corev1.ServiceAccountUIDKey, "")), account: account(), want: mark,
		},
		"NotReferenced": {
			reason: "a user made it",
			secret: tokenSecret(), account: account(unreferencing), want: keepUnreferenced,
		},
		"OnlyAPullSecret": {
			reason: "that list does not count",
			secret: tokenSecret(), account: account(func(a *corev1.ServiceAccount) {
				a.Secrets, a.ImagePullSecrets = nil, []corev1.LocalObjectReference{{Name: "app-token"}}
			}), want: keepUnreferenced,
		},
		"Mounted":          {secret: tokenSecret(usedOn(longAgo)), account: account(), mounted: true, want: keepMounted},
		"MountedAndMarked": {secret: tokenSecret(invalidSince(longAgo)), account: account(), mounted: true, want: keepMounted},

		"MarkIsNoDate": {secret: tokenSecret(invalidSince("2022-12-29-1")), account: account(), want: mark},
		"MarkIsEmpty": {
			reason: "how upstream's own test takes the mark off; kube-apiserver takes it for none",
			secret: tokenSecret(invalidSince("")), account: account(), want: mark,
		},
		"MarkedLately":  {secret: tokenSecret(invalidSince("2023-05-01")), account: account(), want: keepMarked},
		"MarkedLongAgo": {secret: tokenSecret(invalidSince(longAgo)), account: account(), want: remove},

		"TriedWhileMarked": {
			reason: "kube-apiserver refuses the token, notes the day, and leaves the mark",
			secret: tokenSecret(usedOn("2023-05-09"), invalidSince(longAgo)), account: account(), want: keepTried,
		},
		"TriedLongAgo": {
			reason: "a refused try gives it another period, and no more",
			secret: tokenSecret(usedOn("2023-01-05"), invalidSince(longAgo)), account: account(), want: remove,
		},
		"UsedOnTheDayOfTheMark": {
			reason: "before or after it, nobody knows",
			secret: tokenSecret(usedOn("2023-05-01"), invalidSince("2023-05-01")), account: account(), want: keepUsed,
		},
		"UsedAndMarkIsNoDate": {secret: tokenSecret(usedOn("2023-05-09"), invalidSince("x")), account: account(), want: keepUsed},

		"LastUseIsEmpty": {reason: "the label is there", secret: tokenSecret(usedOn("")), account: account(), want: keepUnreadable},

		"UsedOnTheCutoffDay": {
			reason: "the hour is not known, so all of the day is recent",
			secret: tokenSecret(usedOn(cutoffDay)), account: account(), want: keepUsed,
		},
		"UsedTheDayBefore":     {secret: tokenSecret(usedOn(yesterday)), account: account(), want: mark},
		"MarkedOnTheCutoffDay": {secret: tokenSecret(invalidSince(cutoffDay)), account: account(), want: keepMarked},
		"MarkedTheDayBefore":   {secret: tokenSecret(invalidSince(yesterday)), account: account(), want: remove},
		"CreatedAtTheCutoff":   {secret: tokenSecret(createdAt(cutoff)), account: account(), want: keepYoung},
		"CreatedASecondBefore": {secret: tokenSecret(createdAt(cutoff.Add(-time.Second))), account: account(), want: mark},

		"OptedOut": {secret: tokenSecret(annotated(tokensecrets.KeepAnnotation, "true")), account: account(), want: keepOptedOut},
		"Own":      {secret: tokenSecret(), account: account(), own: true, want: keepOwn},
		"Successor": {
			reason: "or another one would be made",
			secret: tokenSecret(), account: account(), predecessor: true, want: keepSuccessor,
		},
		"Replaced": {secret: tokenSecret(), account: account(), successor: tokenSecret(renamed("new")), want: mark},
		"ReplacedAndNotReferenced": {
			reason: "it was given away",
			secret: tokenSecret(invalidSince(longAgo)), account: account(unreferencing),
			successor: tokenSecret(renamed("new")), want: remove,
		},
		"OwnOfAuto": {reason: "the marker alone does not keep it", secret: tokenSecret(autoCreated), account: account(), want: mark},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := observed{
				secret: tokensecrets.Observe(tc.secret), account: tc.account, own: tc.own, mounted: tc.mounted, predecessor: tc.predecessor,
			}
			if tc.successor != nil {
				o.successor = tokensecrets.Observe(tc.successor)
			}
			got := newHorizon(noon(), testPeriod).plan(o)
			if got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

// TestMidnight: days are those of UTC, wherever the process runs.
func TestMidnight(t *testing.T) {
	t.Parallel()
	east, west := time.FixedZone("east", 14*3600), time.FixedZone("west", -12*3600)
	const day = 24 * time.Hour
	cases := map[string]struct {
		now       time.Time
		used      string
		wantToday string
		want      decision
	}{
		"LastMomentOfTheDay": {
			now: time.Date(2023, 5, 10, 23, 59, 59, 999_999_999, time.UTC), used: "2023-05-09", wantToday: "2023-05-10", want: keepUsed,
		},
		"AheadOfUTC": {now: time.Date(2023, 5, 11, 13, 0, 0, 0, east), used: "2023-05-09", wantToday: "2023-05-10", want: keepUsed},
		"BehindUTC":  {now: time.Date(2023, 5, 10, 12, 0, 0, 0, west), used: "2023-05-09", wantToday: "2023-05-11", want: mark},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			when := newHorizon(tc.now, day)
			if got := when.today(); got != tc.wantToday {
				t.Errorf("today is %s, want %s", got, tc.wantToday)
			}
			if got := when.plan(observed{secret: tokensecrets.Observe(tokenSecret(usedOn(tc.used))), account: account()}); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestTracking(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		data   map[string]string
		now    time.Time
		want   idleness
	}{
		"Empty":  {now: noon(), want: trackingInvalid},
		"NoDate": {data: map[string]string{"since": "2022-12-27-1"}, now: noon(), want: trackingInvalid},
		"FirstDayDoesNotCount": {
			reason: "nobody knows at what hour it began",
			data:   map[string]string{"since": "2023-04-09"}, now: time.Date(2023, 5, 9, 23, 59, 59, 0, time.UTC), want: trackingShort,
		},
		"OneDayMore": {data: map[string]string{"since": "2023-04-09"}, now: time.Date(2023, 5, 10, 0, 0, 0, 0, time.UTC)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := newHorizon(tc.now, testPeriod).check(&corev1.ConfigMap{Data: tc.data}); got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}
