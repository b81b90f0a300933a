// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"sa-controller-manager/admission"
	"sa-controller-manager/admission/plugins"
	"sa-controller-manager/admission/serviceaccount"
)

// Admission has the flags of the admission plugins.
type Admission struct {
	// Selection is which plugins run.
	Selection admission.Selection
	// ConfigFile is an AdmissionConfiguration as of kube-apiserver; if it is empty, every plugin has
	// its defaults.
	ConfigFile string
	// PodToken is the form in which a Pod gets its token.
	PodToken serviceaccount.TokenMode
	// LimitSecretReferences is a field of the plugin's configuration, too; the flag wins if it is
	// set.
	LimitSecretReferences bool

	given *pflag.FlagSet
}

// NewAdmission returns the defaults of the group.
func NewAdmission() Admission {
	return Admission{PodToken: serviceaccount.Projected}
}

// Plugins returns all admission plugins in the order in which they run: mutating ones before
// validating ones.
func Plugins() []string {
	return []string{
		plugins.AlwaysAdmit, plugins.NamespaceLifecycle, plugins.SecurityContextDeny, serviceaccount.Name,
		plugins.DenyEscalatingExec, plugins.AlwaysDeny,
	}
}

// Enabled returns the names of the enabled plugins in the order in which they run.
func (o *Admission) Enabled() []string {
	return o.Selection.Names(Plugins(), []string{serviceaccount.Name})
}

// AddFlags binds the group to fs.
func (o *Admission) AddFlags(fs *pflag.FlagSet) {
	o.given = fs
	fs.StringSliceVar(&o.Selection.Enable, "enable-admission-plugins", o.Selection.Enable,
		fmt.Sprintf("Admission plugins to enable besides the default ones (%s). Their order does not matter. "+
			"Available: %s.", serviceaccount.Name, "AlwaysAdmit, AlwaysDeny, DenyEscalatingExec, NamespaceLifecycle, SecurityContextDeny"))
	fs.StringSliceVar(&o.Selection.Disable, "disable-admission-plugins", o.Selection.Disable,
		"Admission plugins to disable although they are enabled by default.")
	fs.StringSliceVar(&o.Selection.Exact, "admission-control", o.Selection.Exact,
		"All admission plugins to run, in this order. Excludes --enable-admission-plugins and --disable-admission-plugins. "+
			"Deprecated in kube-apiserver, where the order is fixed.")
	fs.StringVar(&o.ConfigFile, "admission-control-config-file", o.ConfigFile,
		"`file` with an AdmissionConfiguration (apiserver.config.k8s.io/v1) for the plugins, as for kube-apiserver.")
	fs.StringVar((*string)(&o.PodToken), "pod-token", string(o.PodToken),
		"\"projected\": Pods get a bound token in a projected volume, as since Kubernetes 1.21. "+
			"\"secret\": they mount their account's token Secret, as up to Kubernetes 1.20.")
	fs.BoolVar(&o.LimitSecretReferences, "limit-secret-references", o.LimitSecretReferences,
		"Allow every Pod to reference only Secrets that its ServiceAccount lists. Without this flag, an annotation does so for one account.")

	SetOrigin(fs, asAPIServer, "enable-admission-plugins", "disable-admission-plugins", "admission-control", "admission-control-config-file")
	SetOrigin(fs, ours, "pod-token", "limit-secret-references")
}

// Validate returns every problem of the group. The registry checks the names of plugins.
func (o *Admission) Validate() []error {
	var p Problems
	p.OneOf("pod-token", string(o.PodToken), string(serviceaccount.Projected), string(serviceaccount.Secret))
	return p
}

// PluginConfig returns the configuration of the ServiceAccount plugin, nil for none, overridden by
// the flags that were set.
func (o *Admission) PluginConfig(configuration io.Reader) (serviceaccount.Config, error) {
	var data []byte
	if configuration != nil {
		var err error
		if data, err = io.ReadAll(configuration); err != nil {
			return serviceaccount.Config{}, fmt.Errorf("read the configuration of admission plugin %s: %w", serviceaccount.Name, err)
		}
	}
	config, err := serviceaccount.ParseConfig(data)
	return o.apply(config), err
}

// apply overrides the plugin's configuration with the flags that were set.
func (o *Admission) apply(config serviceaccount.Config) serviceaccount.Config {
	changed := func(flag string) bool { return o.given != nil && o.given.Changed(flag) }
	if changed("pod-token") {
		config.Mode = o.PodToken
	}
	if changed("limit-secret-references") {
		config.LimitSecretReferences = o.LimitSecretReferences
	}
	return config
}
