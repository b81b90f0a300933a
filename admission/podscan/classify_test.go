// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package podscan

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/admission/serviceaccount"
	"sa-controller-manager/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

const tokenPath = "/var/run/secrets/kubernetes.io/serviceaccount"

// created is when the Pods of the tests were.
var created = metav1.NewTime(time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC))

func newPod(changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "pod", UID: "pod", CreationTimestamp: created},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}},
	}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

func of(account string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.ServiceAccountName = account }
}

func automount(on bool) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.AutomountServiceAccountToken = &on }
}

func mounted(pod *corev1.Pod) {
	c := &pod.Spec.Containers[0]
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "x", MountPath: tokenPath})
}

func joined(pod *corev1.Pod) {
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "sidecar"})
}

func phase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Status.Phase = phase }
}

// named gives a Pod a name, and its UID with that.
func named(name string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Name, pod.UID = name, types.UID(name) }
}

func newAccount(changes ...func(*corev1.ServiceAccount)) *corev1.ServiceAccount {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "someone", CreationTimestamp: created}}
	for _, change := range changes {
		change(account)
	}
	return account
}

// changed has the account's managedFields say so.
func changed(after time.Duration, fields string) func(*corev1.ServiceAccount) {
	return func(account *corev1.ServiceAccount) {
		account.ManagedFields = append(account.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: "somebody", Time: new(metav1.NewTime(created.Add(after))), FieldsV1: metav1.NewFieldsV1(fields),
		})
	}
}

func TestClassify(t *testing.T) {
	t.Parallel()
	const automountField = `{"f:automountServiceAccountToken":{}}`
	both, account, token := []Part{Account, Token}, []Part{Account}, []Part{Token}
	young := func(a *corev1.ServiceAccount) {
		a.CreationTimestamp = metav1.NewTime(created.Add(time.Second))
	}
	cases := map[string]struct {
		reason        string
		pod           *corev1.Pod
		account       *corev1.ServiceAccount
		want          []Part
		wantUncertain bool
	}{
		"Nothing":           {pod: newPod(), account: newAccount(), want: both},
		"NothingNorAccount": {pod: newPod(), want: account, reason: "what it would have wanted is unknown"},
		"NothingAndChanged": {
			pod: newPod(), account: newAccount(changed(time.Hour, automountField)), want: both, reason: "without a name it was missed for certain",
		},
		"NothingAndHalfOwn": {
			pod: newPod(mounted, joined), account: newAccount(), want: both, reason: "nobody has come later: the plugin was not there at all",
		},
		"OnlyToken":   {pod: newPod(of("someone")), account: newAccount(), want: token},
		"AccountGone": {pod: newPod(of("someone")), reason: "it may have been quiet"},
		"Joined":      {pod: newPod(of("someone"), mounted, joined), account: newAccount(), reason: "the sidecar came later"},
		"Mirror": {
			account: newAccount(),
			pod: newPod(func(pod *corev1.Pod) {
				metav1.SetMetaDataAnnotation(&pod.ObjectMeta, corev1.MirrorPodAnnotationKey, "")
			}),
		},
		"Succeeded": {pod: newPod(phase(corev1.PodSucceeded)), account: newAccount()},
		"Failed":    {pod: newPod(phase(corev1.PodFailed)), account: newAccount()},
		"Going": {
			account: newAccount(),
			pod:     newPod(func(pod *corev1.Pod) { pod.DeletionTimestamp = &created }),
		},
		"YoungAccount": {
			pod: newPod(of("someone")), account: newAccount(young), want: token, reason: "the plugin would have refused the Pod",
		},
		"InsistsOnChanged": {
			pod: newPod(of("someone"), automount(true)), account: newAccount(changed(time.Hour, automountField)), want: token,
		},
		"TurnedOnSince": {
			pod: newPod(of("someone")), account: newAccount(changed(time.Second, automountField)), want: token, wantUncertain: true,
		},
		"TurnedOnInTheSecond": {pod: newPod(of("someone")), account: newAccount(changed(0, automountField)), want: token},
		"LabeledSince": {
			pod: newPod(of("someone")), account: newAccount(changed(time.Hour, `{"f:metadata":{}}`)), want: token, wantUncertain: true,
			reason: "an entry may stand for what was taken out",
		},
		"GivenSecretsSince":    {pod: newPod(of("someone")), account: newAccount(changed(time.Hour, `{"f:secrets":{}}`)), want: token},
		"GivenPullSecrets":     {pod: newPod(of("someone")), account: newAccount(changed(time.Hour, `{"f:imagePullSecrets":{}}`)), want: token},
		"UnreadableEntrySince": {pod: newPod(of("someone")), account: newAccount(changed(time.Hour, `x`)), want: token, wantUncertain: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			missing, uncertain := classify(serviceaccount.DefaultConfig(), tc.pod, tc.account)
			if diff := cmp.Diff(tc.want, missing, cmpopts.EquateEmpty()); diff != "" || uncertain != tc.wantUncertain {
				t.Errorf("%s\nuncertain %t, want %t; missing (-want +got):\n%s", tc.reason, uncertain, tc.wantUncertain, diff)
			}
			if len(missing) > 0 && !mayLack(serviceaccount.DefaultConfig(), tc.pod) {
				t.Error("it is a miss, and mayLack says that it cannot be one")
			}
		})
	}
}
