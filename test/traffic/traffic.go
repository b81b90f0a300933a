// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package traffic creates Pods at a steady rate while a test does harm, and keeps what became of
// each of them.
package traffic

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/await"
)

// interval is twenty Pods a second.
const interval = 50 * time.Millisecond

// Traffic creates one Pod each interval, whether or not the previous ones have been answered.
type Traffic struct {
	stop    context.CancelFunc
	running sync.WaitGroup

	mu    sync.Mutex
	calls []Call
}

// Call is the creation of one Pod and its outcome.
type Call struct {
	Begun, Ended time.Time
	Pod          *corev1.Pod
	Err          error
}

// Start begins at once and ends with Finish, or with the test.
func Start(t testing.TB, create func(context.Context) (*corev1.Pod, error)) *Traffic {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	tr := &Traffic{stop: cancel}
	tr.running.Go(func() {
		await.Every(ctx, interval, func(ctx context.Context, _ int) {
			one := Call{Begun: time.Now()}
			one.Pod, one.Err = create(ctx)
			one.Ended = time.Now()
			tr.mu.Lock()
			defer tr.mu.Unlock()
			tr.calls = append(tr.calls, one)
		})
	})
	t.Cleanup(func() { tr.Finish() })
	return tr
}

// Finish returns all calls once each has been answered.
func (tr *Traffic) Finish() []Call {
	tr.stop()
	tr.running.Wait()
	return tr.calls
}

// Lasts lets the traffic go on for a time. There is no event to await: that time passes is what
// is meant.
func (*Traffic) Lasts(t testing.TB, more time.Duration) {
	t.Helper()
	select {
	case <-time.After(more):
	case <-t.Context().Done():
	}
}

// Unharmed ends the traffic. Each Pod must have been admitted and be complete, but for errors that
// one of the functions excuses.
func (tr *Traffic) Unharmed(t testing.TB, excuses ...func(Call) bool) {
	t.Helper()
	calls, admitted := tr.Finish(), 0
	for _, one := range calls {
		if one.Err == nil {
			admitted++
			err := Complete(one.Pod)
			testutil.Expect(t, err == nil, "Pod %s: %v", one.Pod.Name, err)
		} else if !slices.ContainsFunc(excuses, func(excused func(Call) bool) bool { return excused(one) }) {
			t.Errorf("a Pod was refused at %s: %v", one.Begun.Format(time.TimeOnly), one.Err)
		}
	}
	testutil.Expect(t, admitted != 0, "no Pod was created, so the test has shown nothing")
	t.Logf("%d of %d Pods were created", admitted, len(calls))
}

// Unanswered reports whether nobody has decided about the Pod: the connection has broken, or
// kube-apiserver said on its way in or out that it is not there.
func Unanswered(one Call) bool {
	var status apierrors.APIStatus
	return !errors.As(one.Err, &status) || apierrors.IsServiceUnavailable(one.Err) || apierrors.IsTooManyRequests(one.Err)
}

// Pod returns a Pod that no node runs.
func Pod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "example.org/web"}}},
	}
}

// Complete reports what a Pod of one container lacks of all that its ServiceAccount gives it.
func Complete(pod *corev1.Pod) error {
	if pod.Spec.ServiceAccountName != "default" {
		return errors.New("it has no account")
	}
	if len(pod.Spec.Volumes) != 1 || !strings.HasPrefix(pod.Spec.Volumes[0].Name, "kube-api-access-") {
		return errors.New("it does not have exactly one token volume")
	}
	mounts := pod.Spec.Containers[0].VolumeMounts
	if len(mounts) != 1 || mounts[0].MountPath != "/var/run/secrets/kubernetes.io/serviceaccount" {
		return errors.New("its container does not mount exactly one token")
	}
	return nil
}
