// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package extras

import (
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"

	"sa-controller-manager/cmd/sa-controller-manager/app"
	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing/remote"
	"sa-controller-manager/signing/testkeys"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// newOptions returns the defaults without ports.
func newOptions() *options.Options {
	o := options.New()
	o.Webhook.Port = 0
	return o
}

// start builds all parts. They run until the test ends, without an API server.
func start(t *testing.T, o *options.Options, plugged app.Extras) error {
	t.Helper()
	config := &rest.Config{Host: "https://127.0.0.1:1"}
	m, err := app.New(t.Context(), o, config, metrics.NewKubeRegistry(), plugged)
	if err == nil {
		testutil.Start(t, m.Run)
	}
	return err
}

// TestPlainKeyFile: with a key file no extra is in the way of a token, and no ring is published.
func TestPlainKeyFile(t *testing.T) {
	t.Parallel()
	o := newOptions()
	o.Keys.PrivateKeyFile = testutil.WriteFile(t, "sa.key", testkeys.P256())
	if New(o).OpenKeys != nil {
		t.Error("an extra opens the key file")
	}
	e := &extras{}
	testutil.Must(t, start(t, o, app.Extras{Parts: e.parts}))
	if e.Keyring == nil {
		t.Fatal("the token controller has no keys")
	}
	for _, part := range e.parts(e.Host) {
		testutil.Must(t, part.Build(&part))
		if part.Run != nil || part.Check != nil {
			t.Errorf("%s runs", part.Name)
		}
	}
}

func TestKeySocketsFlag(t *testing.T) {
	t.Parallel()
	testutil.Check(t, "flag", remote.SocketsFlag, options.KeySocketsFlag)
}
