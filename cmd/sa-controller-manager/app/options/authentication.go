// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"sa-controller-manager/internal/serving"
)

// Authentication says how the secure port finds out who a client is. Defaults and meaning
// are those of KCM (k8s.io/apiserver/pkg/server/options/authentication.go).
type Authentication struct{ serving.Authentication }

func newAuthentication() Authentication {
	return Authentication{serving.Authentication{
		CacheTTL: 10 * time.Second,
		RequestHeader: serving.RequestHeader{
			UsernameHeaders:     []string{"x-remote-user"},
			GroupHeaders:        []string{"x-remote-group"},
			ExtraHeaderPrefixes: []string{"x-remote-extra-"},
		},
	}}
}

// AddFlags binds the group to fs.
func (o *Authentication) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Kubeconfig, "authentication-kubeconfig", o.Kubeconfig,
		"Path of a kubeconfig `file` for an API server where tokens of clients may be reviewed (tokenreviews create). Without it the in-cluster "+
			"configuration is used; where there is none, tokens count for nothing and no CA is looked up.")
	fs.BoolVar(&o.SkipLookup, "authentication-skip-lookup", o.SkipLookup,
		"Do not read a CA file that is not given from the ConfigMap kube-system/extension-apiserver-authentication.")
	fs.BoolVar(&o.TolerateLookupFailure, "authentication-tolerate-lookup-failure", o.TolerateLookupFailure,
		"Without effect: that lookup is tried until it succeeds, never ends the process, and until then no client certificate counts that needs it.")
	fs.DurationVar(&o.CacheTTL, "authentication-token-webhook-cache-ttl", o.CacheTTL, "How long the answer about a token is believed.")
	fs.StringVar(&o.ClientCAFile, "client-ca-file", o.ClientCAFile,
		"PEM `file` with the CA of client certificates, whose common name is the user and whose organizations are the groups. It is read again when it changes.")
	addRequestHeaderFlags(&o.RequestHeader, fs)

	SetOrigin(fs, asKCM, "authentication-kubeconfig", "authentication-skip-lookup", "authentication-token-webhook-cache-ttl", "client-ca-file")
	SetOrigin(fs, asKCM+", which ends when the lookup fails without it", "authentication-tolerate-lookup-failure")
}

func addRequestHeaderFlags(o *serving.RequestHeader, fs *pflag.FlagSet) {
	fs.StringVar(&o.ClientCAFile, "requestheader-client-ca-file", o.ClientCAFile,
		"PEM `file` with the CA of proxies that say in headers who the client is. It is read again when it changes.")
	fs.StringSliceVar(&o.AllowedNames, "requestheader-allowed-names", o.AllowedNames,
		"Common `names` of certificates of such proxies. Empty means every one that the CA has signed.")
	fs.StringSliceVar(&o.UsernameHeaders, "requestheader-username-headers", o.UsernameHeaders, "`Headers` that hold the user's name.")
	fs.StringSliceVar(&o.UIDHeaders, "requestheader-uid-headers", o.UIDHeaders, "`Headers` that hold the user's UID. X-Remote-Uid must be one of them.")
	fs.StringSliceVar(&o.GroupHeaders, "requestheader-group-headers", o.GroupHeaders, "`Headers` that hold the user's groups.")
	fs.StringSliceVar(&o.ExtraHeaderPrefixes, "requestheader-extra-headers-prefix", o.ExtraHeaderPrefixes, "`Prefixes` of headers that hold more about the user.")

	SetOrigin(fs, asKCM, "requestheader-client-ca-file", "requestheader-allowed-names", "requestheader-username-headers",
		"requestheader-uid-headers", "requestheader-group-headers", "requestheader-extra-headers-prefix")
}

// Validate returns every problem of the group.
func (o *Authentication) Validate() []error {
	var p Problems
	p.NotNegative("authentication-token-webhook-cache-ttl", o.CacheTTL)
	return append(p, validateRequestHeader(&o.RequestHeader)...)
}

func validateRequestHeader(o *serving.RequestHeader) []error {
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
