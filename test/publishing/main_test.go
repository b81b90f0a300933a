// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package publishing publishes keys in a bucket of a real S3 gateway, by the code of the product and
// by a whole manager, and has a second cluster verify with what is there. It is a module of its own,
// because the gateway brings some hundred packages.
package publishing

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"sa-controller-manager/test/federation"
	"sa-controller-manager/test/integration/testcluster"
)

// gateway is the one of all tests.
var gateway *federation.Gateway

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "publishing")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if gateway, err = startGateway(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer gateway.Stop()
	return testcluster.Main(m)
}

func startGateway(dir string) (*federation.Gateway, error) {
	for _, variable := range federation.Publisher() {
		name, value, _ := strings.Cut(variable, "=")
		if err := os.Setenv(name, value); err != nil {
			return nil, err
		}
	}
	return federation.StartGateway(context.Background(), dir)
}

// newBucket returns the destination of a new bucket.
func newBucket(t *testing.T, name string) string {
	t.Helper()
	destination, err := gateway.NewBucket(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return destination
}
