// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package external_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"sa-controller-manager/controllers/keyring/external"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/signertest"
	"sa-controller-manager/signing/testkeys"
	"sa-controller-manager/tokens/policy"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// socketPath is short whatever the test's name is: a socket address has 107 bytes.
func socketPath(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "signer") //nolint:usetesting // that of the test has its name in it
	testutil.Must(tb, err)
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s.sock")
}

// configFor is a good configuration for this process.
func configFor(tb testing.TB, ring *signing.Keyring) external.Config {
	tb.Helper()
	const longest = 24 * time.Hour
	allowed, err := policy.New([]string{signertest.Issuer}, longest, nil)
	testutil.Must(tb, err)
	return external.Config{
		Path:               socketPath(tb),
		AllowedUIDs:        []uint32{uint32(os.Getuid())},
		Signer:             ring,
		Keys:               ring,
		Check:              allowed.Check,
		MaxTokenExpiration: longest,
		RefreshHint:        time.Minute,
		QPS:                1000,
	}
}

func newRing(tb testing.TB) *signing.Keyring {
	tb.Helper()
	return signing.NewKeyring(signing.KeyFileRing(testkeys.Parse(testkeys.P256())), testkeys.Parse(testkeys.RSA2048Other()).Public())
}

// serve runs a server until the test ends or stop is called, which returns when it has stopped.
func serve(tb testing.TB, config external.Config) (server *external.Server, logged func() string, stop func()) {
	tb.Helper()
	server, err := external.Listen(config)
	testutil.Must(tb, err)
	logger := ktesting.NewLogger(tb, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(4)))
	stop = testutil.Start(tb, func(ctx context.Context) error { return server.Run(klog.NewContext(ctx, logger)) })
	return server, logger.GetSink().(ktesting.Underlier).GetBuffer().String, stop
}

func connect(tb testing.TB, path string) *signertest.Remote {
	tb.Helper()
	remote, err := signertest.Connect(path)
	testutil.Must(tb, err)
	tb.Cleanup(func() { _ = remote.Close() })
	return remote
}

// newMetrics is a set of its own for each test.
func newMetrics() (*external.Metrics, metrics.KubeRegistry) {
	registry := metrics.NewKubeRegistry()
	return external.NewMetrics(registry.MustRegister), registry
}

const counter = "sacm_external_signer_requests_total"

// calls is the series of calls that ended in one way.
func calls(method, outcome string, n int) string {
	return fmt.Sprintf("%s{method=%q,outcome=%q} %d", counter, method, outcome, n)
}
