// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"net"
	"strconv"

	"github.com/spf13/pflag"
)

// SecureServing says where and how health, metrics and what helps to
// debug are served. Who may read it is another group's: Authentication
// and Authorization.
type SecureServing struct {
	// BindAddress is the local address; an unspecified one (0.0.0.0, ::) or nil
	// means all interfaces and both address families.
	BindAddress net.IP
	// SecurePort is the HTTPS port. On the command line 0 turns serving off.
	SecurePort int
	// PermitPortSharing and PermitAddressSharing set SO_REUSEPORT and SO_REUSEADDR.
	PermitPortSharing    bool
	PermitAddressSharing bool
	// DisableHTTP2 leaves HTTP/1.1.
	DisableHTTP2 bool
	// HTTP2MaxStreams is how many requests a client may have in flight on one
	// connection; 0 means 100, as in KCM.
	HTTP2MaxStreams int
	// TLS says which certificates and which ciphers.
	TLS TLS
}

func newSecureServing() SecureServing {
	// KCM owns 10257 on the host that the two share.
	return SecureServing{BindAddress: net.IPv4zero, SecurePort: 10261}
}

// HostPort is the address to listen on, in the form of package net.
func (o *SecureServing) HostPort() string {
	host := ""
	if o.BindAddress != nil {
		host = o.BindAddress.String()
	}
	return net.JoinHostPort(host, strconv.Itoa(o.SecurePort))
}

// AddFlags binds the group to fs.
func (o *SecureServing) AddFlags(fs *pflag.FlagSet) {
	fs.IPVar(&o.BindAddress, "bind-address", o.BindAddress,
		"`IP` address on which to serve. 0.0.0.0 or :: means all interfaces and both address families.")
	fs.IntVar(&o.SecurePort, "secure-port", o.SecurePort,
		"Port for HTTPS: health, and behind authentication and authorization metrics and what helps to debug. 0 means not to serve.")
	fs.BoolVar(&o.PermitPortSharing, "permit-port-sharing", o.PermitPortSharing,
		"Set SO_REUSEPORT on the port, so that several processes may listen on it.")
	fs.BoolVar(&o.PermitAddressSharing, "permit-address-sharing", o.PermitAddressSharing,
		"Set SO_REUSEADDR on the port, so that it can be opened while connections of the past wait for their end.")
	fs.BoolVar(&o.DisableHTTP2, "disable-http2-serving", o.DisableHTTP2, "Serve HTTP/1.1 only.")
	fs.IntVar(&o.HTTP2MaxStreams, "http2-max-streams-per-connection", o.HTTP2MaxStreams,
		"How many requests at a time a client may send over one HTTP/2 connection. 0 means 100.")
	o.TLS.addFlags(fs)

	SetOrigin(fs, asKCM+", where the default is 10257", "secure-port")
	SetOrigin(fs, asKCM, "bind-address", "permit-port-sharing", "permit-address-sharing",
		"disable-http2-serving", "http2-max-streams-per-connection")
}

// Validate returns every problem of the group.
func (o *SecureServing) Validate() []error {
	var p Problems
	if o.SecurePort < 0 || o.SecurePort > 65535 {
		p.Add("secure-port", o.SecurePort, "must be between 0 and 65535, inclusive; 0 turns secure serving off")
	}
	if o.HTTP2MaxStreams < 0 {
		p.Add("http2-max-streams-per-connection", o.HTTP2MaxStreams, "must not be negative")
	}
	return append(p, o.TLS.validate()...)
}
