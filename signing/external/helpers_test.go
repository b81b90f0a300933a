// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package external_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"go.uber.org/goleak"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/external"
	"sa-controller-manager/signing/signertest"
	"sa-controller-manager/signing/testkeys"
	"sa-controller-manager/tokens/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// socketPath is short whatever the test's name is: a socket address has 107 bytes.
func socketPath(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "signer") //nolint:usetesting // that of the test has its name in it
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s.sock")
}

// configFor is a good configuration for this process.
func configFor(tb testing.TB, ring *signing.Keyring) external.Config {
	tb.Helper()
	const longest = 24 * time.Hour
	allowed, err := policy.New([]string{signertest.Issuer}, longest, nil)
	if err != nil {
		tb.Fatal(err)
	}
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
	if err != nil {
		tb.Fatal(err)
	}
	var mu sync.Mutex
	var lines strings.Builder
	logger := funcr.New(func(_, line string) {
		mu.Lock()
		defer mu.Unlock()
		lines.WriteString(line + "\n")
	}, funcr.Options{Verbosity: 4})
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logger))
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			tb.Errorf("Run: %v", err)
		}
	}
	tb.Cleanup(stop)
	return server, func() string {
		mu.Lock()
		defer mu.Unlock()
		return lines.String()
	}, stop
}

func connect(tb testing.TB, path string) *signertest.Remote {
	tb.Helper()
	remote, err := signertest.Connect(path)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = remote.Close() })
	return remote
}

// newMetrics is a set of its own for each test.
func newMetrics() (*external.Metrics, metrics.KubeRegistry) {
	registry := metrics.NewKubeRegistry()
	return external.NewMetrics(registry.MustRegister), registry
}

// counted is how often each method ended how, as "method outcome".
func counted(tb testing.TB, registry metrics.KubeRegistry) map[string]float64 {
	tb.Helper()
	families, err := registry.Gather()
	if err != nil {
		tb.Fatal(err)
	}
	counts := map[string]float64{}
	for _, family := range families {
		if family.GetName() != "sacm_external_signer_requests_total" {
			continue
		}
		for _, series := range family.GetMetric() {
			labels := map[string]string{}
			for _, label := range series.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			counts[labels["method"]+" "+labels["outcome"]] = series.GetCounter().GetValue()
		}
	}
	return counts
}
