// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"fmt"
	"strconv"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing/testkeys"
)

// TestNamespacesOverPages: one that goes on over several pages is read once, and rows are in the order of the
// list. No other Secrets are asked for.
func TestNamespacesOverPages(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset()
	var secrets []corev1.Secret
	for _, namespace := range []string{"a", "b"} {
		meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: namespace, Name: name} }
		account := &corev1.ServiceAccount{ObjectMeta: meta("robot"), Secrets: []corev1.ObjectReference{{Name: "1"}}}
		account.UID = "uid-robot"
		pod := &corev1.Pod{ObjectMeta: meta("user"), Spec: corev1.PodSpec{Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{
			Secret: &corev1.SecretVolumeSource{SecretName: "1"},
		}}}}}
		testutil.Must(t, client.Tracker().Add(account))
		testutil.Must(t, client.Tracker().Add(pod))
		for _, name := range []string{"1", "2", "3"} {
			secret := tokenSecret(t, name, testkeys.P256())
			secret.Namespace = namespace
			secrets = append(secrets, *secret)
		}
	}
	client.PrependReactor("list", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		list := action.(clienttesting.ListActionImpl)
		testutil.Check(t, "selector", "type=kubernetes.io/service-account-token", list.ListRestrictions.Fields.String())
		page, _ := strconv.Atoi(list.ListOptions.Continue)
		answer := &corev1.SecretList{Items: secrets[2*page : 2*page+2]}
		if page < 2 {
			answer.Continue = strconv.Itoa(page + 1)
		}
		return true, answer, nil
	})
	client.PrependReactor("create", "subjectaccessreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authorizationv1.SubjectAccessReview{}, nil
	})
	auditor := &Auditor{Client: client, Keys: testKeys(t), Rules: Rules{Now: now}, Reach: true, Progress: func(int) {}}
	report := testutil.Get(auditor.Run(t.Context()))(t)
	var got []string
	for _, row := range report.Tokens {
		got = append(got, fmt.Sprintf("%s/%s %t %v", row.Namespace, row.Name, row.Referenced, row.Pods))
	}
	want := []string{"a/1 true [user]", "a/2 false []", "a/3 false []", "b/1 true [user]", "b/2 false []", "b/3 false []"}
	testutil.Check(t, "rows", want, got)
	testutil.Check(t, "examined and shown", []int{6, 6}, []int{report.Summary.Examined, report.Summary.Shown})
	requests := map[string]int{}
	for _, action := range client.Actions() {
		requests[action.GetResource().Resource]++
	}
	testutil.Check(t, "requests", map[string]int{"secrets": 3, "pods": 2, "serviceaccounts": 2, "subjectaccessreviews": 6}, requests)
}
