// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"strings"
	"testing"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

// TestAPanicTellsNoValue: what a plugin panics with may quote the object. The log says where
// it was, and what only if that cannot be anybody's secret.
func TestAPanicTellsNoValue(t *testing.T) {
	t.Parallel()
	object := []byte(`{"secret":"hunter2"}`)
	cases := map[string]struct {
		panics func()
		want   string
	}{
		"text":    {func() { panic(string(object)) }, "a value of type string"},
		"bytes":   {func() { panic(object) }, "a value of type []uint8"},
		"request": {func() { panic(&Request{Object: object}) }, "a value of type *admission.Request"},
		"index":   {func() { _ = object[len(object)+len(createPod("web").Name)] }, "runtime error: index out of range [20] with length 20"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true)))
			plugin := mutates(func(context.Context, *Request, *Outcome) error { tc.panics(); return nil })
			err := Chain{{Name: "a", Plugin: plugin}}.Admit(klog.NewContext(t.Context(), logger), createPod("web"), &Outcome{})
			if err == nil {
				t.Fatal("the request is admitted")
			}
			logged := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
			for _, want := range []string{tc.want, "TestAPanicTellsNoValue"} {
				if !strings.Contains(logged, want) {
					t.Errorf("the log does not say %q:\n%s", want, logged)
				}
			}
			if strings.Contains(logged+err.Error(), "hunter2") {
				t.Errorf("the value is told: %v\n%s", err, logged)
			}
		})
	}
}
