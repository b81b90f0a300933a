// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"time"

	"github.com/spf13/pflag"

	"sa-controller-manager/internal/serving/settings"
)

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
		"Kubeconfig `file` for the API server that authorizes clients (create subjectaccessreviews). Without it the in-cluster "+
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
