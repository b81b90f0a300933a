// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package legacytokencleaner

import (
	"cmp"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/controllers/controllertest"
	"sa-controller-manager/controllers/keyring/reissue"
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
			reason: "before or after it, nobody knows", secret: tokenSecret(usedOn("2023-05-01"), invalidSince("2023-05-01")),
			want: keepUsed,
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

func TestMain(m *testing.M) { testutil.Main(m) }

// The tests live on 2023-05-10 at noon with a period of 30 days, so that the cutoff
// is 2023-04-10 at noon.
const (
	testPeriod = 30 * 24 * time.Hour
	today      = "2023-05-10"
	cutoffDay  = "2023-04-10"
	longAgo    = "2022-12-27"
)

var (
	referencing  = controllertest.Referencing
	annotated    = controllertest.Annotated
	usedOn       = controllertest.UsedOn
	invalidSince = controllertest.InvalidSince
	createdAt    = controllertest.CreatedAt
	autoCreated  = controllertest.AutoCreated
	replacing    = controllertest.Replacing
	terminating  = controllertest.Terminating
)

func noon() time.Time { return time.Date(2023, 5, 10, 12, 0, 0, 0, time.UTC) }

// world is a cleaner and what surrounds it. Its caches hold what is live unless a test says
// otherwise.
type world struct {
	*controllertest.World
	*Controller
}

func newWorld(t testing.TB, change func(*Config), live ...runtime.Object) *world {
	t.Helper()
	w := &world{World: controllertest.NewWorld(noon(), live...)}
	config := Config{
		Client:    w.Client,
		Informers: w.Informers,
		Recorder:  w.Recorder(),
		Metrics:   NewMetrics(w.Registry.MustRegister),
		Period:    testPeriod,
		Clock:     w.Clock,

		Replacements: reissue.Replacements,
	}
	if change != nil {
		change(&config)
	}
	w.Controller = New(config)
	controllertest.EndQueues(t, w.Run)
	w.Cache(t, live...)
	return w
}

// tryRun does one run, with every namespace once, in order.
func (w *world) tryRun(t *testing.T) error {
	t.Helper()
	if err := w.sync(t.Context(), wholeCluster); err != nil {
		return err
	}
	var namespaces []string
	for namespace := range w.run.candidates {
		namespaces = append(namespaces, namespace)
	}
	slices.Sort(namespaces)
	for _, namespace := range namespaces {
		if err := w.sync(t.Context(), namespace); err != nil {
			return err
		}
	}
	return nil
}

// runOnce does one run, and fails the test if that fails.
func (w *world) runOnce(t *testing.T) {
	t.Helper()
	testutil.Must(t, w.tryRun(t))
}

// actions are the requests without those for the tracking ConfigMap and the nodes' Leases.
func (w *world) actions(t *testing.T) []string {
	t.Helper()
	return w.Actions(t, "configmaps", "leases")
}

// decisions are the counts of the last run.
func (w *world) decisions(t *testing.T) map[string]float64 {
	return w.Series(t, "sacm_legacy_token_cleaner_secrets")
}

// account is ServiceAccount ns/app, which references Secret app-token.
func account(changes ...func(*corev1.ServiceAccount)) *corev1.ServiceAccount {
	return controllertest.Account(append([]func(*corev1.ServiceAccount){referencing("app-token")}, changes...)...)
}

func unreferencing(account *corev1.ServiceAccount) { account.Secrets = nil }

// tokenSecret is Secret ns/app-token, made for account app long ago and not used since.
func tokenSecret(changes ...func(*corev1.Secret)) *corev1.Secret {
	created, err := time.Parse(dateFormat, longAgo)
	if err != nil {
		panic(err)
	}
	made := []func(*corev1.Secret){controllertest.BoundTo(controllertest.UID), createdAt(created), func(secret *corev1.Secret) {
		secret.Data[corev1.ServiceAccountTokenKey] = []byte("e30.e30.c2lnbmF0dXJl")
	}}
	return controllertest.TokenSecret("app-token", append(made, changes...)...)
}

// renamed is the same Secret of the same account under another name.
func renamed(name string) func(*corev1.Secret) {
	return func(secret *corev1.Secret) { secret.Name, secret.UID = name, types.UID("uid-"+name) }
}

// tracking is the ConfigMap that kube-apiserver writes.
func tracking(since string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: TrackingConfigMap},
		Data:       map[string]string{"since": since},
	}
}

// mounting is a Pod that names the Secret in a volume.
func mounting(secret string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod-" + secret},
		Spec: corev1.PodSpec{Volumes: []corev1.Volume{{
			Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret}},
		}}},
	}
}
