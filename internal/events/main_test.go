// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"sa-controller-manager/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// limited is a Recorder that writes into an EventLog, on a clock that the test moves.
func limited() (*Recorder, *testutil.EventLog, *clocktesting.FakeClock) {
	clock := clocktesting.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	log := &testutil.EventLog{}
	return NewRecorderTo(log, clock), log, clock
}

// secret refers to a Secret in the namespace shop whose UID is made from its name.
func secret(name string) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Secret", Namespace: "shop", Name: name, UID: types.UID(name + "-uid")}
}
