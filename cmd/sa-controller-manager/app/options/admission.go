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

// Admission say which admission plugins decide and how.
type Admission struct {
	// Selection is which plugins run.
	Selection admission.Selection
	// ConfigFile is kube-apiserver's AdmissionConfiguration; empty means that every
	// plugin has its defaults.
	ConfigFile string
	// PodToken is the form in which a Pod gets its token.
	PodToken serviceaccount.TokenMode
	// LimitSecretReferences and StrictMountableSecrets turn on what the plugin's
	// own configuration may turn on too; the flags win when they are given.
	LimitSecretReferences  bool
	StrictMountableSecrets bool

	given *pflag.FlagSet
}

// NewAdmission returns the defaults of the group.
func NewAdmission() Admission {
	return Admission{PodToken: serviceaccount.Projected}
}

// Plugins is every admission plugin that there is, in the order in which those that are
// enabled decide: what completes an object comes before what judges it.
func Plugins() []string {
	return []string{
		plugins.AlwaysAdmit, plugins.NamespaceLifecycle, plugins.SecurityContextDeny, serviceaccount.Name,
		plugins.DenyEscalatingExec, plugins.AlwaysDeny,
	}
}

// Enabled is the names of the plugins that run, in the order in which they decide.
func (o *Admission) Enabled() []string {
	return o.Selection.Names(Plugins(), []string{serviceaccount.Name})
}

// AddFlags binds the group to fs.
func (o *Admission) AddFlags(fs *pflag.FlagSet) {
	o.given = fs
	fs.StringSliceVar(&o.Selection.Enable, "enable-admission-plugins", o.Selection.Enable,
		fmt.Sprintf("Admission plugins to run besides those that are on by default (%s). Their order does not matter. "+
			"Further ones: %s.", serviceaccount.Name, "AlwaysAdmit, AlwaysDeny, DenyEscalatingExec, NamespaceLifecycle, SecurityContextDeny"))
	fs.StringSliceVar(&o.Selection.Disable, "disable-admission-plugins", o.Selection.Disable,
		"Admission plugins not to run although they are on by default.")
	fs.StringSliceVar(&o.Selection.Exact, "admission-control", o.Selection.Exact,
		"All admission plugins to run, in this order. Excludes --enable-admission-plugins and --disable-admission-plugins. "+
			"kube-apiserver has deprecated it, because there the order is fixed.")
	fs.StringVar(&o.ConfigFile, "admission-control-config-file", o.ConfigFile,
		"`file` with an AdmissionConfiguration (apiserver.config.k8s.io/v1), as kube-apiserver has it, that configures the plugins.")
	fs.StringVar((*string)(&o.PodToken), "pod-token", string(o.PodToken),
		"\"projected\": Pods get a bound token in a projected volume, as since Kubernetes 1.21. "+
			"\"secret\": they mount their account's token Secret, as up to Kubernetes 1.20.")
	fs.BoolVar(&o.LimitSecretReferences, "limit-secret-references", o.LimitSecretReferences,
		"Let every Pod refer only to Secrets that its ServiceAccount lists. Without it, an annotation does so for one account.")
	fs.BoolVar(&o.StrictMountableSecrets, "strict-mountable-secrets", o.StrictMountableSecrets,
		"Where references are limited, limit those in every field that names a Secret: projected and CSI volumes and the "+
			"other volume types too, which kube-apiserver's plugin does not look at.")

	SetOrigin(fs, asAPIServer, "enable-admission-plugins", "disable-admission-plugins", "admission-control", "admission-control-config-file")
	SetOrigin(fs, ours, "pod-token", "limit-secret-references", "strict-mountable-secrets")
}

// Validate returns every problem of the group. Names of plugins are checked when
// the registry is there.
func (o *Admission) Validate() []error {
	var p Problems
	p.OneOf("pod-token", string(o.PodToken), string(serviceaccount.Projected), string(serviceaccount.Secret))
	return p
}

// PluginConfig is the ServiceAccount plugin's own configuration, nil for none, with the
// flags that were given on top.
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

// apply lays the flags that were given over the plugin's own configuration.
func (o *Admission) apply(config serviceaccount.Config) serviceaccount.Config {
	changed := func(flag string) bool { return o.given != nil && o.given.Changed(flag) }
	if changed("pod-token") {
		config.Mode = o.PodToken
	}
	if changed("limit-secret-references") {
		config.LimitSecretReferences = o.LimitSecretReferences
	}
	if changed("strict-mountable-secrets") {
		config.StrictMountableSecrets = o.StrictMountableSecrets
	}
	return config
}
