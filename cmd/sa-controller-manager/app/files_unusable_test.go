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

func bufferingLogger() klog.Logger {
	return ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(0)))
}

// passedOver are the lines about unusable keys.
func passedOver(logger klog.Logger) (told []string) {
	for _, entry := range logger.GetSink().(ktesting.Underlier).GetBuffer().Data() {
		if line := fmt.Sprintln(append([]any{entry.Message}, entry.ParameterKVList...)...); strings.HasPrefix(line, "Passed over") {
			told = append(told, line)
		}
	}
	return told
}

// TestWatchTellsOfWhatIsInUse, and not of what has come into the file since it was read.
func TestWatchTellsOfWhatIsInUse(t *testing.T) {
	t.Parallel()
	path := writeFile(t, "sa.pub", slices.Concat(testkeys.P224(), testkeys.P256()))
	f := &files{verifyKeys: []*reload.File[verifyKeys]{mustOpen(t, path, parseVerifyKeys)}}
	replace(t, path, testkeys.P384())
	logger := bufferingLogger()
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logger))
	cancel()
	f.watch(ctx, nil, signing.NewKeyring(nil, f.publicKeys()...), nil)
	if told := passedOver(logger); len(told) != 1 || !strings.Contains(told[0], "found an EC key on P-224") {
		t.Errorf("told %q, want the key of the first reading", told)
	}
}

// TestWatchTellsOfAnUnusableKey of what a file has at the start, and of what it gets: kube-apiserver may verify with it.
func TestWatchTellsOfAnUnusableKey(t *testing.T) {
	t.Parallel()
	path := writeFile(t, "sa.pub", slices.Concat(testkeys.P224(), testkeys.P256()))
	f := &files{
		verifyKeys: []*reload.File[verifyKeys]{mustOpen(t, path, parseVerifyKeys)},
		metrics:    newFileMetrics(metrics.NewKubeRegistry().MustRegister),
	}
	logger := bufferingLogger()
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logger))
	defer cancel()
	ring, ended := signing.NewKeyring(nil, f.publicKeys()...), make(chan string)
	go func() {
		f.watch(ctx, nil, ring, nil)
		close(ended)
	}()
	awaits := func(what string, come func() bool) {
		t.Helper()
		deadline := time.Now().Add(10 * time.Second)
		for !come() && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond) // neither the log nor the ring tells anybody
		}
		if !come() {
			t.Fatalf("%s: told %q", what, passedOver(logger))
		}
	}
	awaits("at the start", func() bool { return len(passedOver(logger)) == 1 })
	replace(t, path, slices.Concat(testkeys.RSA1024(), testkeys.P384()))
	awaits("after a change", func() bool { return len(passedOver(logger)) == 2 })
	replace(t, path, testkeys.P521())
	awaits("after the mend", func() bool { return slices.Equal(keyIDs(ring.Keys().All()), []string{keyID(t, testkeys.P521())}) })
	cancel()
	receive(t, "end of watch", ended)

	told := passedOver(logger)
	if len(told) != 2 {
		t.Fatalf("told %q, want two lines", told)
	}
	for i, cause := range []string{"an EC key on P-224", "an RSA key of 1024 bits"} {
		if want := "Passed over a verification key that is not accepted here file " + path + " cause found " + cause + "; accepted is "; !strings.HasPrefix(told[i], want) {
			t.Errorf("told %q, want %q", told[i], want)
		}
	}
}
