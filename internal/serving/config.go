// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package serving is the secure port: health, metrics and what helps to debug over HTTPS,
// for those whom the API server lets read it. Names of flags in its errors are those that
// every Kubernetes component has for these settings.
//
// New opens the port and reads every file, so that whatever is wrong is an error of the
// start-up; the API server need not answer yet. Certificates and CAs are followed while
// Run serves. No path may show a secret: health paths need no permission.
package serving

import (
	"net"
	"strconv"
	"time"

	cliflag "k8s.io/component-base/cli/flag"
)

// Config is what a server needs.
type Config struct {
	// Name and Version are the program's.
	Name, Version string

	Port           Port
	Authentication Authentication
	Authorization  Authorization
	Debugging      Debugging

	// Flags are shown on /flagz, and Options on /configz, in JSON.
	Flags   cliflag.NamedFlagSets
	Options any
	// Live answers /livez and /healthz, Ready answers /readyz.
	Live, Ready []Check
}

// Port says where and how health, metrics and what helps to debug are served. Who may
// read it, Authentication and Authorization say.
type Port struct {
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

// hostPort is the address to listen on, in the form of package net.
func (p *Port) hostPort() string {
	host := ""
	if p.BindAddress != nil {
		host = p.BindAddress.String()
	}
	return net.JoinHostPort(host, strconv.Itoa(p.SecurePort))
}

// TLS says which certificates the secure port shows and what it agrees on
// with clients. Names and meaning are those of every Kubernetes component
// (k8s.io/apiserver/pkg/server/options).
type TLS struct {
	// CertFile and KeyFile go together. Without them the process makes a
	// certificate for itself.
	CertFile string
	KeyFile  string
	// CertDir is where a self-made certificate is kept; empty means in memory.
	CertDir string
	// SNICertKeys are further certificates, for clients that ask for their names.
	SNICertKeys      []cliflag.NamedCertKey
	CipherSuites     []string
	MinVersion       string
	CurvePreferences []int32
}

// Authentication says how the secure port finds out who a client is.
// Defaults and meaning are those of KCM
// (k8s.io/apiserver/pkg/server/options/authentication.go).
type Authentication struct {
	// Kubeconfig reaches the API server that reviews tokens; empty means the
	// in-cluster configuration or, outside of a Pod, none.
	Kubeconfig string
	// SkipLookup means not to read what is missing here from the ConfigMap
	// kube-system/extension-apiserver-authentication.
	SkipLookup bool
	// TolerateLookupFailure is taken and without effect: see its flag.
	TolerateLookupFailure bool
	// CacheTTL is how long the answer about a token is believed.
	CacheTTL time.Duration
	// ClientCAFile vouches for client certificates.
	ClientCAFile  string
	RequestHeader RequestHeader
}

// RequestHeader says when a proxy in front may name the client. They are
// used only with ClientCAFile; without it, the ConfigMap has all of them.
type RequestHeader struct {
	ClientCAFile        string
	AllowedNames        []string
	UsernameHeaders     []string
	UIDHeaders          []string
	GroupHeaders        []string
	ExtraHeaderPrefixes []string
}

// Authorization says how the secure port finds out what a client may get.
// Defaults and meaning are those of KCM
// (k8s.io/apiserver/pkg/server/options/authorization.go).
type Authorization struct {
	// Kubeconfig reaches the API server that is asked; empty means the in-cluster
	// configuration or, outside of a Pod, none.
	Kubeconfig string
	// AlwaysAllowPaths are served to everybody. One that ends in * is a prefix.
	AlwaysAllowPaths []string
	// AllowCacheTTL and DenyCacheTTL are how long a yes and a no are believed.
	AllowCacheTTL time.Duration
	DenyCacheTTL  time.Duration
}

// Debugging says what the secure port tells about the process itself.
type Debugging struct {
	// Profiling serves /debug/pprof/.
	Profiling bool
	// ContentionProfiling records where goroutines wait for each other, which costs
	// a little. Only with Profiling, as in KCM.
	ContentionProfiling bool
}
