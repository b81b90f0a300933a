// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/json"

	"sa-controller-manager/admission"
	"sa-controller-manager/internal/testutil"
)

// TestMissingIsWhatAdmitAdds compares MissingFrom with the plugin in every case of testdata/create:
// before admission it names what Admit adds, and afterwards nothing.
func TestMissingIsWhatAdmitAdds(t *testing.T) {
	t.Parallel()
	forEachCase(t, "create", func(t *testing.T, tc podCase) {
		plugin := tc.plugin(t)
		response, patched, err := admitTwice(t, plugin, creation(tc.Pod))
		if err != nil || patched == nil {
			return
		}
		before, after := typedPod(t, tc.Pod), typedPod(t, patched)
		account, err := plugin.from.cachedAccount(cache.NewObjectName(testNamespace, AccountOf(before)))
		if err != nil {
			return // a Pod without account has nothing to compare, such as a mirror pod
		}
		want := Missing{
			Account: patches(response, "/spec/serviceAccountName") && patches(response, "/spec/serviceAccount"),
			Token: slices.ContainsFunc(response.Patch,
				func(o admission.PatchOperation) bool { return strings.Contains(o.Path, "/volumeMounts") }),
			TokenElsewhere: plugin.config.MissingFrom(before, account).TokenElsewhere,
		}
		testutil.Check(t, tc.Reason+"\nbefore", want, plugin.config.MissingFrom(before, account))
		if got := plugin.config.MissingFrom(after, account); got.Account || got.Token {
			t.Errorf("%s\nstill missing after admission: %+v", tc.Reason, got)
		}
	})
}

func TestMissingFrom(t *testing.T) {
	t.Parallel()
	someone := account(testNamespace, "someone")
	mount := corev1.VolumeMount{Name: "any", MountPath: tokenPath}
	notRequired := DefaultConfig()
	notRequired.Mode, notRequired.RequireAPIToken = Secret, false
	cases := map[string]struct {
		reason  string
		config  Config
		account *corev1.ServiceAccount
		mirror  bool
		pod     corev1.PodSpec
		want    Missing
	}{
		"AccountIsGone": {
			reason: "such a Pod would be refused", config: DefaultConfig(),
			pod: corev1.PodSpec{ServiceAccountName: "someone", Containers: []corev1.Container{{}}},
		},
		"Mirror": {
			account: someone, config: DefaultConfig(), mirror: true,
			pod: corev1.PodSpec{Containers: []corev1.Container{{}}},
		},
		"TokenInOneContainer": {
			account: someone, config: DefaultConfig(), want: Missing{Token: true, TokenElsewhere: true},
			pod: corev1.PodSpec{ServiceAccountName: "someone", Containers: []corev1.Container{{VolumeMounts: []corev1.VolumeMount{mount}}, {}}},
		},
		"VolumeOnly": {
			account: someone, config: DefaultConfig(), want: Missing{Token: true, TokenElsewhere: true},
			pod: corev1.PodSpec{
				ServiceAccountName: "someone", Containers: []corev1.Container{{}}, Volumes: []corev1.Volume{{Name: "kube-api-access-x"}},
			},
		},
		"TokenSecretNotRequired": {
			reason: "there may have been none", account: someone, config: notRequired,
			pod: corev1.PodSpec{ServiceAccountName: "someone", Containers: []corev1.Container{{}}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: tc.pod}
			if tc.mirror {
				metav1.SetMetaDataAnnotation(&pod.ObjectMeta, corev1.MirrorPodAnnotationKey, "")
			}
			testutil.Check(t, tc.reason+"\nmissing", tc.want, tc.config.MissingFrom(pod, tc.account))
		})
	}
}

func patches(response *admission.Response, path string) bool {
	return slices.ContainsFunc(response.Patch, func(o admission.PatchOperation) bool { return o.Path == path })
}

func typedPod(t *testing.T, object []byte) *corev1.Pod {
	t.Helper()
	var pod corev1.Pod
	testutil.Must(t, json.UnmarshalCaseSensitivePreserveInts(object, &pod))
	return &pod
}
