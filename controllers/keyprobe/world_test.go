// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keyprobe

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
)

func TestMain(m *testing.M) { testutil.Main(m) }

const testIssuer = "https://issuer.example.com"

// keys of the tests: one signs at the start, the others are set later.
type keys struct{ old, next, third *signing.PrivateKey }

func testKeys() keys {
	return keys{old: testkeys.Parse(testkeys.P256()), next: testkeys.Parse(testkeys.P256Other()), third: testkeys.Parse(testkeys.P384())}
}

// named puts the names of the keys in place of their IDs.
func (k keys) named(text string) string {
	return strings.NewReplacer(k.old.ID(), "OLD", k.next.ID(), "NEXT", k.third.ID(), "THIRD").Replace(text)
}

// trial is an Activator that runs in a synctest bubble, and all that it can be seen by.
type trial struct {
	*Activator
	keys
	server *apiserver
	logger klog.Logger
	ctx    context.Context
	stop   func()
}

func start(t *testing.T, server *apiserver, changes ...func(*Config)) *trial {
	t.Helper()
	trial := &trial{keys: testKeys(), server: server}
	trial.logger = ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true)))
	config := Config{
		Client: server, Informers: server.Informers, Ring: signing.NewKeyring(signing.KeyFileRing(trial.old)),
		Issuer:   testIssuer,
		Recorder: server.Recorder(),
		Process:  &corev1.ObjectReference{Kind: "Lease", Namespace: "kube-system", Name: "sa-controller-manager"},
		Metrics:  NewMetrics(server.Registry.MustRegister),
	}
	for _, change := range changes {
		change(&config)
	}
	trial.Activator = New(config)

	trial.ctx = klog.NewContext(t.Context(), trial.logger)
	trial.stop = server.Start(t, func(ctx context.Context) error { return trial.Run(klog.NewContext(ctx, trial.logger)) })
	synctest.Wait()
	return trial
}

// set is what a key file does whose content has changed.
func (t *trial) set(ctx context.Context, key *signing.PrivateKey) {
	t.Ring.Set(signing.KeyFileRing(key))
	t.RingChanged(ctx)
}

// give sets a key and waits until it has been dealt with.
func (t *trial) give(key *signing.PrivateKey) {
	t.set(t.ctx, key)
	synctest.Wait()
}

// signs is the name of the active key.
func (t *trial) signs() string { return t.named(t.Ring.Ring().ActiveID()) }

// waits is the name of the next key.
func (t *trial) waits() string {
	next := t.Ring.Ring().Next()
	if next == nil {
		return "nobody"
	}
	return t.named(next.ID())
}

// said are the messages in the log with their key and reason.
func (t *trial) said() []string {
	lines := []string{}
	for _, entry := range t.logger.GetSink().(ktesting.Underlier).GetBuffer().Data() {
		values := map[string]string{}
		for i := 0; i+1 < len(entry.ParameterKVList); i += 2 {
			values[fmt.Sprint(entry.ParameterKVList[i])] = fmt.Sprint(entry.ParameterKVList[i+1])
		}
		if _, ours := values["keyID"]; !ours {
			continue // client-go's
		}
		line := entry.Message
		for _, name := range slices.Sorted(maps.Keys(values)) {
			line += " " + name + "=" + values[name]
		}
		lines = append(lines, t.named(line))
	}
	return lines
}

func (t *trial) told() []string {
	lines := t.server.Recorded.Lines()
	for i := range lines {
		lines[i] = t.named(lines[i])
	}
	return lines
}

func (t *trial) reviewed() []string {
	t.server.mu.Lock()
	defer t.server.mu.Unlock()
	lines := []string{}
	for _, line := range t.server.reviews {
		lines = append(lines, t.named(line))
	}
	return lines
}

// series are the metrics that begin with prefix, as Prometheus sees them, sorted.
func (t *trial) series(prefix string) []string {
	lines := testutil.Series(t.server.Registry, prefix)
	for i := range lines {
		lines[i] = t.named(lines[i])
	}
	slices.Sort(lines) // the names of the keys sort differently from their IDs
	return lines
}
