// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestMain(m *testing.M) {
	// klog flushes its buffers for as long as the process lives.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

// notebook is a recorder of client-go that keeps what it is told.
type notebook struct{ lines []string }

func (n *notebook) Eventf(regarding, related runtime.Object, eventType, reason, action, note string, args ...any) {
	line := fmt.Sprintf("%s: %s %s %s: %s", regarding.(*corev1.ObjectReference).Name, eventType, reason, action, fmt.Sprintf(note, args...))
	if related != nil {
		line += " (and another object)"
	}
	n.lines = append(n.lines, line)
}

// limited is a Recorder that writes into a notebook, on a clock that the test moves.
func limited() (*Recorder, *notebook, *clocktesting.FakeClock) {
	clock := clocktesting.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	told := &notebook{lines: []string{}}
	return NewRecorderTo(told, clock), told, clock
}

// secret refers to a Secret in the namespace shop whose UID is made from its name.
func secret(name string) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Secret", Namespace: "shop", Name: name, UID: types.UID(name + "-uid")}
}
