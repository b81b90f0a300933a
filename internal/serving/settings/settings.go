// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package settings has what the flags of the secure port set. It is apart from the server, so that
// the commands that know the flags do not link k8s.io/apiserver.
package settings

import (
	"net"
	"strconv"
	"time"

	cliflag "k8s.io/component-base/cli/flag"
)

// Port configures the port.
type Port struct {
	// BindAddress is the local address; an unspecified one (0.0.0.0, ::) or nil
	// means all interfaces and both address families.
	BindAddress net.IP
	// SecurePort is the HTTPS port. On the command line 0 turns serving off.
	SecurePort int
	// DisableHTTP2 leaves HTTP/1.1.
	DisableHTTP2 bool
	// HTTP2MaxStreams is how many requests a client may have in flight on one
	// connection; 0 means 100, as in KCM.
	HTTP2MaxStreams int
	// TLS configures certificates and ciphers.
	TLS TLS
}

// HostPort returns the address to listen on, in the form of package net.
func (p *Port) HostPort() string {
	host := ""
	if p.BindAddress != nil {
		host = p.BindAddress.String()
	}
	return net.JoinHostPort(host, strconv.Itoa(p.SecurePort))
}

// TLS configures the certificates and TLS versions of the secure port, like the flags of every
// Kubernetes component (k8s.io/apiserver/pkg/server/options).
type TLS struct {
	// CertFile and KeyFile must be given together. Without them the process uses a self-signed
	// certificate.
	CertFile string
	KeyFile  string
	// CertDir stores the self-signed certificate; empty means in memory.
	CertDir string
	// SNICertKeys are additional certificates for other server names.
	SNICertKeys      []cliflag.NamedCertKey
	CipherSuites     []string
	MinVersion       string
	CurvePreferences []int32
}

// Authentication configures how the secure port authenticates clients. Defaults and meaning are the
// same as in KCM (k8s.io/apiserver/pkg/server/options/authentication.go).
type Authentication struct {
	// Kubeconfig reaches the API server that reviews tokens; empty means the
	// in-cluster configuration or, outside of a Pod, none.
	Kubeconfig string
	// SkipLookup disables the lookup of missing settings in the ConfigMap
	// kube-system/extension-apiserver-authentication.
	SkipLookup bool
	// CacheTTL is how long the result of a TokenReview is cached.
	CacheTTL time.Duration
	// ClientCAFile has the CAs of client certificates.
	ClientCAFile  string
	RequestHeader RequestHeader
}

// RequestHeader configures when a proxy may name the client. The fields are used only with
// ClientCAFile; without it, the ConfigMap has all of them.
type RequestHeader struct {
	ClientCAFile        string
	AllowedNames        []string
	UsernameHeaders     []string
	UIDHeaders          []string
	GroupHeaders        []string
	ExtraHeaderPrefixes []string
}

// Authorization configures how the secure port authorizes clients. Defaults and meaning are the
// same as in KCM (k8s.io/apiserver/pkg/server/options/authorization.go).
type Authorization struct {
	// Kubeconfig reaches the API server that is asked; empty means the in-cluster
	// configuration or, outside of a Pod, none.
	Kubeconfig string
	// AlwaysAllowPaths need no authorization. A path that ends in * is a prefix.
	AlwaysAllowPaths []string
	// AllowCacheTTL and DenyCacheTTL are how long decisions are cached.
	AllowCacheTTL time.Duration
	DenyCacheTTL  time.Duration
}

// Debugging configures the debugging paths.
type Debugging struct {
	// Profiling serves /debug/pprof/.
	Profiling bool
	// ContentionProfiling records where goroutines wait for each other, which costs
	// a little. Only with Profiling, as in KCM.
	ContentionProfiling bool
}
