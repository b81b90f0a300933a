// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"sa-controller-manager/internal/testutil"
)

// mirrorPod is a component of the control plane on node cp.
func mirrorPod(component string, flags ...string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "kube-system", Name: component + "-cp", Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "x"},
		},
		Spec: corev1.PodSpec{NodeName: "cp", Containers: []corev1.Container{{Command: append([]string{component}, flags...)}}},
	}
}

// inVersion is a kube-apiserver of a version.
func inVersion(version string, flags ...string) *corev1.Pod {
	pod := mirrorPod("kube-apiserver", flags...)
	pod.Spec.Containers[0].Image = "registry.k8s.io/kube-apiserver:" + version
	return pod
}

// ours is our static pod with a mode of registration.
func ours(mode string) *corev1.Pod {
	return mirrorPod("sa-controller-manager", "--webhook-registration="+mode)
}

// leasing gives the cluster a Lease inside the bubble, where the time is another one.
func leasing(holder string, renewed time.Duration) func(*testing.T, *cluster, *fake.Clientset) {
	return func(t *testing.T, _ *cluster, client *fake.Clientset) {
		t.Helper()
		testutil.Must(t, client.Tracker().Add(&coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "sa-controller-manager"},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: &holder, LeaseDurationSeconds: new(int32(15)), RenewTime: new(metav1.NewMicroTime(time.Now().Add(-renewed))),
			},
		}))
	}
}

func TestControlPlane(t *testing.T) {
	t.Parallel()
	server, kcm := mirrorPod("kube-apiserver"), mirrorPod("kube-controller-manager", "--controllers=*,-serviceaccount-controller",
		"--service-account-private-key-file=sa.key")
	bound := append(registered("mutate.sa-controller-manager.webhook", nil), server, kcm)
	const off = "--controllers=-serviceaccount-controller,-root-ca-certificate-publisher-controller"
	const idle = "the webhook is not bound, and no replica leads"
	try(t, "control-plane", map[string]checkCase{
		"NoTakeover": {
			reason: "there was no takeover, so stock is right", skipped: idle,
			objects: []runtime.Object{server, mirrorPod("kube-controller-manager")},
		},
		"NoPods": {
			reason: "they are no static pods", objects: registered("mutate.sa-controller-manager.webhook", nil),
			skipped: "no static pods of kube-apiserver and kube-controller-manager",
		},
		"Good": {
			reason: "the takeover has reached both", objects: append(registered("mutate.sa-controller-manager.webhook", nil),
				mirrorPod("kube-apiserver", "--disable-admission-plugins=ServiceAccount")),
		},
		"Server": {
			reason: "the upgrade had no patches", objects: bound,
			want: []string{"controller-nowhere: serviceaccount-controller", "apiserver-stock: kube-apiserver-cp"},
		},
		"Manager": {
			reason: "both would write", objects: []runtime.Object{kcm}, change: leasing("a", time.Second),
			want: []string{"controller-manager-stock: kube-controller-manager-cp (root-ca-certificate-publisher-controller, " +
				"legacy-serviceaccount-token-cleaner-controller, serviceaccount-token-controller)"},
		},
		"FromFiles": {
			reason:  "the takeover has reached both",
			objects: []runtime.Object{inVersion("v1.37.2", "--disable-admission-plugins=ServiceAccount"), ours("static")},
			change:  leasing("a", time.Second),
		},
		"ServerBesideFiles": {
			reason: "the upgrade had no patches", objects: []runtime.Object{inVersion("v1.37.2"), ours("static")}, change: leasing("a", time.Second),
			want: []string{"apiserver-stock: kube-apiserver-cp"},
		},
		"LeftToIt": {
			reason: "one of the two runs it", change: leasing("a", time.Second), objects: []runtime.Object{
				mirrorPod("kube-controller-manager", "--controllers=legacy-service-account-token-cleaner,serviceaccount,root-ca-cert-publisher"),
				mirrorPod("sa-controller-manager", "--controllers=serviceaccount-token-controller"),
			},
		},
		"Nowhere": {
			reason: "a takeover of one of several before v1.37", objects: []runtime.Object{inVersion("v1.37.2"), ours("none")},
			change: leasing("a", time.Second),
		},
		"Released": {
			reason: "our controllers do not run", objects: []runtime.Object{kcm}, change: leasing("", time.Second),
			want: []string{"controller-nowhere: serviceaccount-controller"},
		},
		"Expired": {
			reason: "our controllers do not run", objects: []runtime.Object{kcm}, change: leasing("a", 16*time.Second),
			want: []string{"controller-nowhere: serviceaccount-controller"},
		},
		"OffInOursToo": {
			reason: "our manifest was made from a manifest with our own lines", objects: []runtime.Object{
				mirrorPod("kube-controller-manager", off),
				mirrorPod("sa-controller-manager", "--controllers=*,"+strings.TrimPrefix(off, "--controllers=")),
			},
			change: leasing("a", time.Second),
			want:   []string{"controller-nowhere: serviceaccount-controller, root-ca-certificate-publisher-controller"},
		},
		"AfterAnIncompleteHandback": {
			reason: "nothing of ours is there", objects: []runtime.Object{server, mirrorPod("kube-controller-manager", off)},
			want: []string{"controller-nowhere: serviceaccount-controller, root-ca-certificate-publisher-controller"},
		},
		"Ahead": {
			reason: "clocks differ a little", objects: []runtime.Object{mirrorPod("kube-controller-manager", off), ours("none")},
			change: leasing("a", -time.Minute),
		},
		"InTheFuture": {
			reason: "nobody may lead", objects: []runtime.Object{kcm}, change: leasing("a", -61*time.Second),
			wantErr: "which is in the future: it is not known whether a replica leads",
		},
		"NoLease": {
			reason: "an error is no finding", change: failing("get", "leases"),
			wantErr: "read the Lease kube-system/sa-controller-manager: the API is down",
		},
		"Down": {reason: "not asked", change: failing("list", "pods"), wantErr: "list the Pods of kube-system: the API is down"},
	})
}
