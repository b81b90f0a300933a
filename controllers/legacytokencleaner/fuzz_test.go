// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package legacytokencleaner

import (
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"

	"sa-controller-manager/controllers/controllertest"
	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/testutil"
)

// What the flags of FuzzPlan say.
const (
	isLabelledUsed = 1 << iota
	isLabelledInvalid
	isTerminating
	isKept
	isOwn
	isMounted
	isPredecessor
	isSuccessorThere
	isUnreferenced
	isOfAnother
	isNobodys
)

// FuzzPlan decides on any Secret at any time. What is marked or deleted has been unused, or
// marked, for all of a period; a mark changes nothing but the label, and is not set twice.
func FuzzPlan(f *testing.F) {
	for _, dates := range [][2]string{{"", ""}, {longAgo, longAgo}, {today, longAgo}, {cutoffDay, cutoffDay}, {"x", "2023-02-30"}, {"9999-12-31", "0000-00-00"}} {
		for _, flags := range []uint16{0, 3, 3 | isSuccessorThere | isUnreferenced, 3 | isMounted, 2 | isKept, 2 | isOwn} {
			f.Add(dates[0], dates[1], "key", "value", 3000, 0, uint16(720), flags)
			f.Add(dates[0], dates[1], "key", "value", 10, 9999, uint16(1), flags)
		}
	}
	w := newWorld(f, nil)
	w.Controller.Recorder = nil
	var patch []byte
	w.Client.PrependReactor("patch", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch = action.(clienttesting.PatchActionImpl).Patch
		return true, nil, nil
	})
	f.Fuzz(func(t *testing.T, used, since, key, value string, age, later int, period, flags uint16) {
		const most = 24 * 365 * 50 // hours
		now := noon().Add(time.Duration(later%most) * time.Hour)
		when := newHorizon(now, time.Duration(max(period, 1))*time.Hour)
		secret := labelledSecret(t, used, since, key, value, flags)
		createdAt(now.Add(-time.Duration(age%most) * time.Hour))(secret)
		seen := observation(secret, flags)
		outcome := when.plan(seen)
		if outcome.acts() {
			checkAct(t, when, secret, flags)
		}
		switch outcome {
		case remove:
			if marked, err := time.Parse(dateFormat, secret.Labels[tokensecrets.InvalidSinceLabel]); err != nil || now.Sub(marked.AddDate(0, 0, 1)) < when.period {
				t.Errorf("deleted at %v, marked on %q, for a period of %v", now, secret.Labels[tokensecrets.InvalidSinceLabel], when.period)
			}
			if then := newHorizon(now.Add(time.Hour), when.period).plan(seen); then != remove {
				t.Errorf("deleted at %v, and an hour later %q", now, then)
			}
		case mark:
			w.round = round{horizon: when, replaced: when}
			if became, err := w.mark(klog.NewContext(t.Context(), logr.Discard()), seen); err != nil || became != mark {
				t.Fatalf("%q: %v", became, err)
			}
			w.Client.ClearActions()
			after := controllertest.Merged(t, secret, patch)
			if again := when.plan(observation(after, flags)); again != keepMarked {
				t.Errorf("once it is marked: %q, want %q", again, keepMarked)
			}
			if after.Labels[tokensecrets.InvalidSinceLabel] != when.today() || after.UID != secret.UID || after.ResourceVersion != secret.ResourceVersion {
				t.Errorf("marked by %s", patch)
			}
			delete(after.Labels, tokensecrets.InvalidSinceLabel)
			before := secret.DeepCopy()
			delete(before.Labels, tokensecrets.InvalidSinceLabel)
			testutil.Check(t, "changed besides", controllertest.Encoded(t, before), controllertest.Encoded(t, after))
		default: // it is kept
		}
	})
}

// labelledSecret is the Secret as it comes from kube-apiserver, which has valid UTF-8 only.
func labelledSecret(t *testing.T, used, since, key, value string, flags uint16) *corev1.Secret {
	t.Helper()
	key, value = strings.ToValidUTF8(key, "?"), strings.ToValidUTF8(value, "?")
	secret := tokenSecret()
	secret.Labels[key], secret.Data[key] = value, []byte(value)
	if _, ours := secret.Annotations[key]; !ours && key != tokensecrets.KeepAnnotation {
		secret.Annotations[key] = value
	}
	delete(secret.Labels, tokensecrets.LastUsedLabel)
	delete(secret.Labels, tokensecrets.InvalidSinceLabel)
	if flags&isLabelledUsed != 0 {
		usedOn(strings.ToValidUTF8(used, "?"))(secret)
	}
	if flags&isLabelledInvalid != 0 {
		invalidSince(strings.ToValidUTF8(since, "?"))(secret)
	}
	if flags&isTerminating != 0 {
		terminating(secret)
	}
	if flags&isKept != 0 {
		annotated(tokensecrets.KeepAnnotation, "true")(secret)
	}
	return controllertest.Merged(t, secret, []byte(`{}`))
}

func observation(secret *corev1.Secret, flags uint16) observed {
	seen := observed{
		secret: tokensecrets.Observe(secret), account: account(),
		own: flags&isOwn != 0, mounted: flags&isMounted != 0, predecessor: flags&isPredecessor != 0,
	}
	if flags&isSuccessorThere != 0 {
		seen.successor = tokensecrets.Observe(tokenSecret(renamed("new")))
	}
	if flags&isUnreferenced != 0 {
		seen.account.Secrets = nil
	}
	if flags&isOfAnother != 0 {
		seen.account.UID = "uid-another"
	}
	if flags&isNobodys != 0 {
		seen.account = nil
	}
	return seen
}

// checkAct wants nothing done to what must stay, nor to what was used in the last period.
func checkAct(t *testing.T, when horizon, secret *corev1.Secret, flags uint16) {
	t.Helper()
	if flags&(isTerminating|isKept|isOwn|isMounted|isPredecessor|isOfAnother|isNobodys) != 0 {
		t.Errorf("something is done with what must stay, flags %b", flags)
	}
	if flags&isUnreferenced != 0 && flags&isSuccessorThere == 0 {
		t.Error("something is done with what a user made")
	}
	if when.now.Sub(secret.CreationTimestamp.Time) <= when.period {
		t.Errorf("something is done at %v with what was created at %v, for a period of %v", when.now, secret.CreationTimestamp, when.period)
	}
	last, used := secret.Labels[tokensecrets.LastUsedLabel]
	if day, err := time.Parse(dateFormat, last); used && (err != nil || when.now.Sub(day.AddDate(0, 0, 1)) < when.period) {
		t.Errorf("something is done at %v with what was used on %q, for a period of %v", when.now, last, when.period)
	}
}
