// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"sa-controller-manager/internal/serving/settings"
)

// Authentication has the flags for authentication at the secure port. Defaults and meaning
// are those of KCM (k8s.io/apiserver/pkg/server/options/authentication.go).
type Authentication struct{ settings.Authentication }

func newAuthentication() Authentication {
	return Authentication{settings.Authentication{
		CacheTTL: 10 * time.Second,
		RequestHeader: settings.RequestHeader{
			UsernameHeaders:     []string{"x-remote-user"},
			GroupHeaders:        []string{"x-remote-group"},
			ExtraHeaderPrefixes: []string{"x-remote-extra-"},
		},
	}}
}

// AddFlags binds the group to fs.
func (o *Authentication) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Kubeconfig, "authentication-kubeconfig", o.Kubeconfig,
		"Kubeconfig `file` for the kube-apiserver that reviews the tokens of clients (create tokenreviews). "+
			"Without it the in-cluster configuration is used; without that, tokens are not accepted and no CA is looked up.")
	fs.BoolVar(&o.SkipLookup, "authentication-skip-lookup", o.SkipLookup,
		"Do not read a CA file that is not given from the ConfigMap kube-system/extension-apiserver-authentication. "+
			"Otherwise it is read again until that succeeds.")
	fs.DurationVar(&o.CacheTTL, "authentication-token-webhook-cache-ttl", o.CacheTTL, "How long the review of a token is cached.")
	fs.StringVar(&o.ClientCAFile, "client-ca-file", o.ClientCAFile,
		"PEM `file` with the CA of client certificates, whose common name is the user and whose organizations are the groups. "+
			"The file is reloaded when it changes.")
	addRequestHeaderFlags(&o.RequestHeader, fs)

	fs.VisitAll(func(f *pflag.Flag) { SetOrigin(fs, asKCM, f.Name) })
}

func addRequestHeaderFlags(o *settings.RequestHeader, fs *pflag.FlagSet) {
	fs.StringVar(&o.ClientCAFile, "requestheader-client-ca-file", o.ClientCAFile,
		"PEM `file` with the CA of proxies that name the client in headers. The file is reloaded when it changes.")
	fs.StringSliceVar(&o.AllowedNames, "requestheader-allowed-names", o.AllowedNames,
		"Common `names` of the certificates of these proxies. Empty means any certificate of the CA.")
	fs.StringSliceVar(&o.UsernameHeaders, "requestheader-username-headers", o.UsernameHeaders, "`Headers` with the user name.")
	fs.StringSliceVar(&o.UIDHeaders, "requestheader-uid-headers", o.UIDHeaders,
		"`Headers` with the UID of the user. X-Remote-Uid must be one of them.")
	fs.StringSliceVar(&o.GroupHeaders, "requestheader-group-headers", o.GroupHeaders, "`Headers` with the groups of the user.")
	fs.StringSliceVar(&o.ExtraHeaderPrefixes, "requestheader-extra-headers-prefix", o.ExtraHeaderPrefixes,
		"`Prefixes` of the headers with extra attributes of the user.")
}

// Validate returns every problem of the group.
func (o *Authentication) Validate() []error {
	var p Problems
	p.NotNegative("authentication-token-webhook-cache-ttl", o.CacheTTL)
	return append(p, validateRequestHeader(&o.RequestHeader)...)
}

func validateRequestHeader(o *settings.RequestHeader) []error {
	var p Problems
	for flag, values := range map[string][]string{
		"requestheader-allowed-names":        o.AllowedNames,
		"requestheader-username-headers":     o.UsernameHeaders,
		"requestheader-uid-headers":          o.UIDHeaders,
		"requestheader-group-headers":        o.GroupHeaders,
		"requestheader-extra-headers-prefix": o.ExtraHeaderPrefixes,
	} {
		if slices.ContainsFunc(values, func(s string) bool { return strings.TrimSpace(s) == "" }) {
			p.Add(flag, strings.Join(values, ","), "must not have an empty entry")
		}
	}
	standard := func(s string) bool { return strings.EqualFold(s, "X-Remote-Uid") }
	if len(o.UIDHeaders) > 0 && !slices.ContainsFunc(o.UIDHeaders, standard) {
		p.Add("requestheader-uid-headers", strings.Join(o.UIDHeaders, ","), "must have X-Remote-Uid among them")
	}
	slices.SortFunc(p, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return p
}

// Authorization has the flags for authorization at the secure port. Defaults and
// meaning are those of KCM (k8s.io/apiserver/pkg/server/options/authorization.go).
type Authorization struct{ settings.Authorization }

func newAuthorization() Authorization {
	return Authorization{settings.Authorization{
		AlwaysAllowPaths: []string{"/healthz", "/readyz", "/livez"},
		AllowCacheTTL:    10 * time.Second,
		DenyCacheTTL:     10 * time.Second,
	}}
}

// AddFlags binds the group to fs.
func (o *Authorization) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Kubeconfig, "authorization-kubeconfig", o.Kubeconfig,
		"Kubeconfig `file` for the kube-apiserver that authorizes clients (create subjectaccessreviews). Without it the in-cluster "+
			"configuration is used; without that, only the group system:masters may read more than --authorization-always-allow-paths.")
	fs.StringSliceVar(&o.AlwaysAllowPaths, "authorization-always-allow-paths", o.AlwaysAllowPaths,
		"`Paths` that are served to any client without authorization. A path that ends in '*' is a prefix.")
	fs.DurationVar(&o.AllowCacheTTL, "authorization-webhook-cache-authorized-ttl", o.AllowCacheTTL, "How long an allowed request is cached.")
	fs.DurationVar(&o.DenyCacheTTL, "authorization-webhook-cache-unauthorized-ttl", o.DenyCacheTTL, "How long a denied request is cached.")
	fs.VisitAll(func(f *pflag.Flag) { SetOrigin(fs, asKCM, f.Name) })
}

// Validate returns every problem of the group.
func (o *Authorization) Validate() []error {
	var p Problems
	p.NotNegative("authorization-webhook-cache-authorized-ttl", o.AllowCacheTTL)
	p.NotNegative("authorization-webhook-cache-unauthorized-ttl", o.DenyCacheTTL)
	return p
}
