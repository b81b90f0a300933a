// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package external

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"sa-controller-manager/internal/connlimit"
)

// errStranger refuses a call of a user who may not sign.
var errStranger = errors.New("the user of this process is not among those that may use this socket")

// peerCredentials has the kernel say who is at the other end of a connection. A stranger is let in
// and then refused at each call: kube-apiserver retries a connection that closes until it gives up,
// and never shows why.
type peerCredentials struct{}

var _ credentials.TransportCredentials = peerCredentials{}

// caller is the process that connected, as it was at that time.
type caller struct {
	credentials.CommonAuthInfo
	uid  uint32
	pid  int32
	conn *connlimit.Conn
}

// AuthType implements credentials.AuthInfo.
func (caller) AuthType() string { return "peercred" }

// ServerHandshake implements credentials.TransportCredentials. Nothing is sent.
func (peerCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	found, ok := conn.(*connlimit.Conn)
	if !ok {
		return nil, nil, fmt.Errorf("a connection of type %T is not of the listener", conn)
	}
	socket, ok := found.Conn.(syscall.Conn)
	if !ok {
		return nil, nil, fmt.Errorf("a connection of type %T has no peer credentials", found.Conn)
	}
	control, err := socket.SyscallConn()
	if err != nil {
		return nil, nil, err
	}
	var user *unix.Ucred
	var failure error
	if err := control.Control(func(fd uintptr) {
		user, failure = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return nil, nil, err
	}
	if failure != nil {
		return nil, nil, fmt.Errorf("peer credentials: %w", failure)
	}
	// What passes through a unix socket does not leave the machine.
	local := credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}
	return conn, caller{CommonAuthInfo: local, uid: user.Uid, pid: user.Pid, conn: found}, nil
}

// ClientHandshake implements credentials.TransportCredentials. These are a server's credentials.
func (peerCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("peer credentials are for servers")
}

// Info implements credentials.TransportCredentials.
func (peerCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "peercred"}
}

// Clone implements credentials.TransportCredentials.
func (c peerCredentials) Clone() credentials.TransportCredentials { return c }

// OverrideServerName implements credentials.TransportCredentials, which has deprecated it.
func (peerCredentials) OverrideServerName(string) error { return nil }

// callerOf returns who makes the call, and false for a connection whose peer the kernel did not name.
func callerOf(ctx context.Context) (caller, bool) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return caller{}, false
	}
	c, ok := p.AuthInfo.(caller)
	return c, ok
}

// checkCaller is who makes the call, if that is one of the users.
func checkCaller(ctx context.Context, allowed []uint32) (caller, error) {
	if c, ok := callerOf(ctx); ok && slices.Contains(allowed, c.uid) {
		return c, nil
	}
	return caller{}, errStranger
}
