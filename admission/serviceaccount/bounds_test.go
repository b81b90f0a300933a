// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/admission"
	"sa-controller-manager/internal/testutil"
)

func TestContainers(t *testing.T) {
	t.Parallel()
	plugin := newWorld(account(testNamespace, defaultAccount)).plugin(DefaultConfig())
	const one = `{"name":"a"}`
	pod := func(containers, inits int) []byte {
		list := func(n int) string { return strings.TrimSuffix(strings.Repeat(one+",", n), ",") }
		return fmt.Appendf(nil, `{"spec":{"serviceAccountName":"default","containers":[%s],"initContainers":[%s]}}`,
			list(containers), list(inits))
	}
	for name, tc := range map[string]struct {
		containers, inits int
		want              int32
	}{"Most": {600, 400, 0}, "OneMore": {600, 401, 413}} {
		for call, decide := range plugin.calls() {
			code, message := codeAndMessage(decide(t.Context(), creation(pod(tc.containers, tc.inits)), &admission.Response{}))
			testutil.Check(t, name+" "+call+": "+message, tc.want, code)
		}
	}
}

// TestLimitIsLinear: a user may list as many Secrets in an account as he refers to.
func TestLimitIsLinear(t *testing.T) {
	t.Parallel()
	const many = 40_000
	limited := account(testNamespace, defaultAccount)
	limited.Annotations = map[string]string{enforceAnnotation: "true"}
	var env strings.Builder
	for i := range many {
		limited.Secrets = append(limited.Secrets, corev1.ObjectReference{Name: fmt.Sprint("s", i)})
		fmt.Fprintf(&env, `,{"secretRef":{"name":"s%d"}}`, i)
	}
	object := []byte(`{"spec":{"serviceAccountName":"default","containers":[{"name":"a","envFrom":[` + env.String()[1:] + `]}]}}`)
	plugin := newWorld(limited).plugin(DefaultConfig())
	start := time.Now()
	testutil.Must(t, plugin.Validate(t.Context(), creation(object), &admission.Response{}))
	t.Logf("%d references to as many Secrets: %s", many, time.Since(start))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	testutil.CheckError(t, "nobody waits any more", "context canceled", plugin.Validate(ctx, creation(object), &admission.Response{}))
}
