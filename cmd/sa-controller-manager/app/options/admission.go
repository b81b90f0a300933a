// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"github.com/spf13/pflag"

	"sa-controller-manager/admission/serviceaccount"
)

// Admission has the flags of the ServiceAccount plugin.
type Admission struct {
	// PodToken is the form in which a Pod gets its token.
	PodToken serviceaccount.TokenMode
	// LimitSecretReferences is the plugin's.
	LimitSecretReferences bool
}

// NewAdmission returns the defaults of the group.
func NewAdmission() Admission {
	return Admission{PodToken: serviceaccount.Projected}
}

// AddFlags binds the group to fs.
func (o *Admission) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar((*string)(&o.PodToken), "pod-token", string(o.PodToken),
		"\"projected\": Pods get a bound token in a projected volume, as since Kubernetes 1.21. "+
			"\"secret\": they mount their account's token Secret, as up to Kubernetes 1.20.")
	fs.BoolVar(&o.LimitSecretReferences, "limit-secret-references", o.LimitSecretReferences,
		"Limit every Pod to Secrets that its ServiceAccount lists. Without it, an annotation does so for one account.")

	SetOrigin(fs, ours, "pod-token", "limit-secret-references")
}

// Validate returns every problem of the group.
func (o *Admission) Validate() []error {
	var p Problems
	p.OneOf("pod-token", string(o.PodToken), string(serviceaccount.Projected), string(serviceaccount.Secret))
	return p
}

// Plugin returns the configuration of the plugin.
func (o *Admission) Plugin() serviceaccount.Config {
	config := serviceaccount.DefaultConfig()
	config.LimitSecretReferences, config.Mode = o.LimitSecretReferences, o.PodToken
	return config
}
