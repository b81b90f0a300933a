// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"testing"

	"sa-controller-manager/test/balancer"
)

// balance has a balancer listen on the address until the test ends.
func balance(t *testing.T, address string, replicas ...string) *balancer.Balancer {
	t.Helper()
	b, err := balancer.Start(address, replicas)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// awaitBalanced returns once so many replicas are known to be ready.
func awaitBalanced(t *testing.T, b *balancer.Balancer, want int) {
	t.Helper()
	poll(t, "await that the balancer knows the replicas", func(context.Context) error {
		if ready := b.Ready(); len(ready) != want {
			return fmt.Errorf("it knows of %v", ready)
		}
		return nil
	})
}

func at(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }
