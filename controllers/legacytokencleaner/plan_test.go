// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package legacytokencleaner

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/testutil"
)

// TestPlan has every row of upstream's TestLegacyServiceAccountTokenCleanUp that is
// about a Secret, named as there or nearly so, and the edges between the rows.
func TestPlan(t *testing.T) {
	t.Parallel()
	const yesterday = "2023-04-09" // of the cutoff
	cutoff := noon().Add(-testPeriod)
	for name, tc := range map[string]struct {
		reason                  string
		secret                  *corev1.Secret
		account                 *corev1.ServiceAccount // account() if nil
		noAccount, own, mounted bool
		successor               *corev1.Secret
		predecessor             bool
		want                    decision
	}{
		"NotUsedNotMarked":     {secret: tokenSecret(), want: mark},
		"UsedLongAgoNotMarked": {secret: tokenSecret(usedOn(longAgo)), want: mark},
		"LateCreationTime":     {secret: tokenSecret(usedOn(longAgo), createdAt(noon().AddDate(0, 0, -3))), want: keepYoung},
		"DeletionTime":         {secret: tokenSecret(usedOn(longAgo), terminating), want: keepTerminating},
		"LateLastUse":          {secret: tokenSecret(usedOn("2023-05-01")), want: keepUsed},
		"LastUseIsNoDate":      {secret: tokenSecret(usedOn("2022-12-27-1")), want: keepUnreadable},
		"NoAccount":            {secret: tokenSecret(), noAccount: true, want: keepNoAccount},
		"AccountHasAnotherUID": {secret: tokenSecret(annotated(corev1.ServiceAccountUIDKey, "uid-before")), want: keepNoAccount},
		"AccountNameIsEmpty":   {secret: tokenSecret(annotated(corev1.ServiceAccountNameKey, "")), want: keepNoAccount},
		"UIDIsNotAnnotated": {
			reason: "upstream takes the name for enough then", secret: tokenSecret(annotated(corev1.ServiceAccountUIDKey, "")), want: mark,
		},
		"NotReferenced": {reason: "a user made it", secret: tokenSecret(), account: account(unreferencing), want: keepUnreferenced},
		"OnlyAPullSecret": {
			reason: "that list does not count",
			secret: tokenSecret(), account: account(func(a *corev1.ServiceAccount) {
				a.Secrets, a.ImagePullSecrets = nil, []corev1.LocalObjectReference{{Name: "app-token"}}
			}), want: keepUnreferenced,
		},
		"Mounted":          {secret: tokenSecret(usedOn(longAgo)), mounted: true, want: keepMounted},
		"MountedAndMarked": {secret: tokenSecret(invalidSince(longAgo)), mounted: true, want: keepMounted},

		"MarkIsNoDate": {secret: tokenSecret(invalidSince("2022-12-29-1")), want: mark},
		"MarkIsEmpty": {
			reason: "how upstream's own test takes the mark off; kube-apiserver takes it for none", secret: tokenSecret(invalidSince("")),
			want: mark,
		},
		"MarkedLately":  {secret: tokenSecret(invalidSince("2023-05-01")), want: keepMarked},
		"MarkedLongAgo": {secret: tokenSecret(invalidSince(longAgo)), want: remove},

		"TriedWhileMarked": {
			reason: "kube-apiserver refuses the token, notes the day, and leaves the mark",
			secret: tokenSecret(usedOn("2023-05-09"), invalidSince(longAgo)), want: keepTried,
		},
		"TriedLongAgo": {
			reason: "a refused try gives it another period, and no more", secret: tokenSecret(usedOn("2023-01-05"), invalidSince(longAgo)),
			want: remove,
		},
		"UsedOnTheDayOfTheMark": {
			reason: "before or after it, nobody knows", secret: tokenSecret(usedOn("2023-05-01"), invalidSince("2023-05-01")), want: keepUsed,
		},
		"UsedAndMarkIsNoDate": {secret: tokenSecret(usedOn("2023-05-09"), invalidSince("x")), want: keepUsed},

		"LastUseIsEmpty": {reason: "the label is there", secret: tokenSecret(usedOn("")), want: keepUnreadable},

		"UsedOnTheCutoffDay": {
			reason: "the hour is not known, so all of the day is recent", secret: tokenSecret(usedOn(cutoffDay)), want: keepUsed,
		},
		"UsedTheDayBefore":     {secret: tokenSecret(usedOn(yesterday)), want: mark},
		"MarkedOnTheCutoffDay": {secret: tokenSecret(invalidSince(cutoffDay)), want: keepMarked},
		"MarkedTheDayBefore":   {secret: tokenSecret(invalidSince(yesterday)), want: remove},
		"CreatedAtTheCutoff":   {secret: tokenSecret(createdAt(cutoff)), want: keepYoung},
		"CreatedASecondBefore": {secret: tokenSecret(createdAt(cutoff.Add(-time.Second))), want: mark},

		"OptedOut":  {secret: tokenSecret(annotated(tokensecrets.KeepAnnotation, "true")), want: keepOptedOut},
		"Own":       {secret: tokenSecret(), own: true, want: keepOwn},
		"Successor": {reason: "or another one would be made", secret: tokenSecret(), predecessor: true, want: keepSuccessor},
		"Replaced":  {secret: tokenSecret(), successor: tokenSecret(renamed("new")), want: mark},
		"ReplacedAndNotReferenced": {
			reason: "it was given away", secret: tokenSecret(invalidSince(longAgo)), account: account(unreferencing),
			successor: tokenSecret(renamed("new")), want: remove,
		},
		"OwnOfAuto": {reason: "the marker alone does not keep it", secret: tokenSecret(autoCreated), want: mark},
	} {
		t.Run(name, func(t *testing.T) {
			o := observed{
				secret: tokensecrets.Observe(tc.secret), account: cmp.Or(tc.account, account()),
				own: tc.own, mounted: tc.mounted, predecessor: tc.predecessor,
			}
			if tc.noAccount {
				o.account = nil
			}
			if tc.successor != nil {
				o.successor = tokensecrets.Observe(tc.successor)
			}
			got := newHorizon(noon().In(time.FixedZone("east", 14*3600)), testPeriod).plan(o) // days are those of UTC
			testutil.Check(t, tc.reason, tc.want, got)
		})
	}
}

// TestEverySecretOfAPodIsVisited fills every field of a PodSpec, whatever Kubernetes
// adds to it, and takes for the name of a Secret what lies under a field that is
// called after Secrets. Volumes are looked at one by one, as only one source is
// allowed.
func TestEverySecretOfAPodIsVisited(t *testing.T) {
	t.Parallel()
	pod := corev1.PodSpec{}
	var want []string
	fillSecrets(reflect.ValueOf(&pod).Elem(), "", &want)
	source := reflect.TypeFor[corev1.VolumeSource]()
	for i := range source.NumField() {
		volume := corev1.Volume{Name: "v"}
		fillSecrets(reflect.ValueOf(&volume.VolumeSource).Elem().Field(i), source.Field(i).Name, &want)
		pod.Volumes = append(pod.Volumes, volume)
	}
	found := []string{}
	VisitSecrets(&pod, func(name string) { found = append(found, name) })
	slices.Sort(found)
	slices.Sort(want)
	testutil.Check(t, "Secrets", want, slices.Compact(found))
	const fields = 18 // pull secrets, two for each of three kinds of container, eleven kinds of volume
	testutil.Check(t, "fields", fields, len(want))
}

// fillSecrets gives every field below value that names a Secret a name of its own.
func fillSecrets(value reflect.Value, path string, names *[]string) {
	if !value.CanSet() {
		return // unexported
	}
	switch value.Kind() {
	case reflect.Pointer:
		value.Set(reflect.New(value.Type().Elem()))
		fillSecrets(value.Elem(), path, names)
	case reflect.Slice:
		if strings.HasSuffix(path, ".Volumes") || value.Type().Elem().Kind() == reflect.Uint8 {
			return
		}
		value.Set(reflect.MakeSlice(value.Type(), 1, 1))
		fillSecrets(value.Index(0), path, names)
	case reflect.Struct:
		for i := range value.NumField() {
			name := "." + value.Type().Field(i).Name
			if value.Type().Field(i).Anonymous {
				name = "" // embedded: its fields are those of the outer one
			}
			fillSecrets(value.Field(i), path+name, names)
		}
	case reflect.String:
		if namesSecret(path) {
			value.SetString(path)
			*names = append(*names, path)
		}
	default: // numbers and maps name nothing
	}
}

func namesSecret(path string) bool {
	fields := strings.Split(path, ".")
	last, owner := fields[len(fields)-1], fields[max(0, len(fields)-2)]
	return last == "SecretName" || last == "Name" && strings.Contains(owner, "Secret")
}
