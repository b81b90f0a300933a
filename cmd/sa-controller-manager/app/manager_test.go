// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
)

// keysInMemory is a signing.Store of one key.
type keysInMemory struct{ ring *signing.Ring }

func (s keysInMemory) Load() *signing.Ring { return s.ring }

func (s keysInMemory) Watch(ctx context.Context, _ func(*signing.Ring), _ func(error)) { <-ctx.Done() }

func (s keysInMemory) Status() signing.StoreStatus { return signing.StoreStatus{} }

// TestTwoManagersInOneProcess wants the whole table of the core, without a file, a port or a socket.
func TestTwoManagersInOneProcess(t *testing.T) {
	t.Parallel()
	for range 2 {
		o := parse(t, "--webhook-port=0", "--secure-port=0")
		config := &rest.Config{Host: "https://apiserver", Transport: roundTrip(fail)}
		m, err := New(t.Context(), o, config, metrics.NewKubeRegistry(), Extras{
			OpenKeys: func(context.Context, *Host) (signing.Store, error) {
				return keysInMemory{signing.KeyFileRing(testkeys.Parse(testkeys.P256()))}, nil
			},
		})
		testutil.Must(t, err)
		var names []string
		for _, part := range m.parts {
			names = append(names, part.Name)
		}
		testutil.Check(t, "parts", []string{
			"event-recorder", "permissions", "caches", "watches", "key-store", "signing-key", options.ServiceAccountController,
			options.LegacyServiceAccountTokenCleaner, options.ServiceAccountTokenController, "files", "secure-port", "secure-port-lookup",
		}, names)
		testutil.Start(t, m.Run)
	}
}
