// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"net"
	"strconv"

	"github.com/spf13/pflag"
)

// SecureServingOptions says where health and metrics are served.
type SecureServingOptions struct {
	// BindAddress is the local address; an unspecified one (0.0.0.0, ::) or nil
	// means all interfaces and both address families.
	BindAddress net.IP
	// SecurePort is the HTTPS port. On the command line 0 turns serving off.
	SecurePort int
}

func newSecureServingOptions() SecureServingOptions {
	// KCM owns 10257 on the host that the two share.
	return SecureServingOptions{BindAddress: net.IPv4zero, SecurePort: 10261}
}

// hostPort is the address to listen on, in the form of package net.
func (o *SecureServingOptions) hostPort() string {
	host := ""
	if o.BindAddress != nil {
		host = o.BindAddress.String()
	}
	return net.JoinHostPort(host, strconv.Itoa(o.SecurePort))
}

// AddFlags binds the group to fs.
func (o *SecureServingOptions) AddFlags(fs *pflag.FlagSet) {
	fs.IPVar(&o.BindAddress, "bind-address", o.BindAddress,
		"`IP` address on which to serve. 0.0.0.0 or :: means all interfaces and both address families.")
	fs.IntVar(&o.SecurePort, "secure-port", o.SecurePort,
		"Port for HTTPS: /healthz, /livez, /readyz and /metrics, for whoever can reach it. 0 means not to serve.")

	setOrigin(fs, asKCM, "bind-address")
	setOrigin(fs, asKCM+", where the default is 10257", "secure-port")
}

// Validate returns every problem of the group.
func (o *SecureServingOptions) Validate() []error {
	var p problems
	if o.SecurePort < 0 || o.SecurePort > 65535 {
		p.add("secure-port", o.SecurePort, "must be between 0 and 65535, inclusive; 0 turns secure serving off")
	}
	return p
}

// listen opens the port at once, so that one that is taken is an error of the
// start-up and says which flag to change.
func (o *SecureServingOptions) listen() (net.Listener, error) {
	ln, err := net.Listen("tcp", o.hostPort())
	if err != nil {
		return nil, fmt.Errorf("open --secure-port %d on --bind-address %s: %w", o.SecurePort, o.BindAddress, err)
	}
	return ln, nil
}
