// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/reload"
	"sa-controller-manager/signing/testkeys"
)

// TestWatchTellsOfAnUnusableKey of what a file has at the start, and of what it gets: kube-apiserver may verify with it.
func TestWatchTellsOfAnUnusableKey(t *testing.T) {
	t.Parallel()
	path := writeFile(t, "sa.pub", slices.Concat(testkeys.P224(), testkeys.P256()))
	f := &files{
		verifyKeys: []*reload.File[[]signing.PublicKey]{mustOpen(t, path, signing.ParsePublicKeys)},
		metrics:    newFileMetrics(metrics.NewKubeRegistry().MustRegister),
	}
	logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(0)))
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logger))
	defer cancel()
	ring, ended := signing.NewKeyring(nil, f.publicKeys()...), make(chan string)
	go func() {
		f.watch(ctx, nil, ring, nil)
		close(ended)
	}()
	passedOver := func() (told []string) {
		for _, entry := range logger.GetSink().(ktesting.Underlier).GetBuffer().Data() {
			if line := fmt.Sprintln(append([]any{entry.Message}, entry.ParameterKVList...)...); strings.HasPrefix(line, "Passed over") {
				told = append(told, line)
			}
		}
		return told
	}
	awaits := func(what string, come func() bool) {
		t.Helper()
		deadline := time.Now().Add(10 * time.Second)
		for !come() && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond) // neither the log nor the ring tells anybody
		}
		if !come() {
			t.Fatalf("%s: told %q", what, passedOver())
		}
	}
	awaits("at the start", func() bool { return len(passedOver()) == 1 })
	replace(t, path, slices.Concat(testkeys.RSA1024(), testkeys.P384()))
	awaits("after a change", func() bool { return len(passedOver()) == 2 })
	replace(t, path, testkeys.P521())
	awaits("after the mend", func() bool { return slices.Equal(keyIDs(ring.Keys().All()), []string{keyID(t, testkeys.P521())}) })
	cancel()
	receive(t, "end of watch", ended)

	told := passedOver()
	if len(told) != 2 {
		t.Fatalf("told %q, want two lines", told)
	}
	for i, cause := range []string{"an EC key on P-224", "an RSA key of 1024 bits"} {
		if want := "Passed over a verification key that is not accepted here file " + path + " cause found " + cause + "; accepted is "; !strings.HasPrefix(told[i], want) {
			t.Errorf("told %q, want %q", told[i], want)
		}
	}
}
