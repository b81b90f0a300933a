// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
)

// listen opens the port at once, so that one that is taken is an error of the
// start-up and says which flag to change.
func listenSecurely(o *options.SecureServing) (net.Listener, error) {
	config := net.ListenConfig{Control: control(o)}
	// Opening a local port does not block, so there is nothing to cancel.
	ln, err := config.Listen(context.Background(), "tcp", o.HostPort())
	if err != nil {
		return nil, fmt.Errorf("open --secure-port %d on --bind-address %s: %w", o.SecurePort, o.BindAddress, err)
	}
	return ln, nil
}

// control sets what --permit-port-sharing and --permit-address-sharing ask for.
func control(o *options.SecureServing) func(_, _ string, conn syscall.RawConn) error {
	return func(_, _ string, conn syscall.RawConn) error {
		var errs []error
		err := conn.Control(func(fd uintptr) {
			if o.PermitPortSharing {
				errs = append(errs, unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
			}
			if o.PermitAddressSharing {
				errs = append(errs, unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
			}
		})
		return errors.Join(append(errs, err)...)
	}
}
