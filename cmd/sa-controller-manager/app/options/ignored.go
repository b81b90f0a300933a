// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
)

// Ignored accepts and ignores the flags of KCM that have no meaning here, so that the arguments of a
// KCM manifest can be copied.
type Ignored struct {
	// Strict makes each of these flags an error.
	Strict bool
	// FeatureGates are the given feature gates by component; this program has none.
	FeatureGates map[string][]string
	// Given are the names of the ignored flags on the command line, in their order.
	Given []string
}

// ignoredValue accepts any value.
type ignoredValue struct {
	IgnoredFlag
	text  string
	given *[]string
}

func (v *ignoredValue) String() string { return v.text }

func (v *ignoredValue) Type() string {
	if v.IsSwitch {
		return "bool"
	}
	return "string"
}

func (v *ignoredValue) Set(text string) error {
	v.text = text
	if !slices.Contains(*v.given, v.Name) {
		*v.given = append(*v.given, v.Name)
	}
	return nil
}

// AddFlags binds the group to fs.
func (o *Ignored) AddFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.Strict, "strict-flags", o.Strict,
		"Refuse the flags of kube-controller-manager that this program ignores. By default they are accepted and logged once.")
	fs.Var(cliflag.NewColonSeparatedMultimapStringStringAllowDefaultEmptyKey(&o.FeatureGates), "feature-gates",
		"Feature `gates` as name=true,name=false. This program has none: they are logged once, and refused with --strict-flags.")
	SetOrigin(fs, ours, "strict-flags")
	SetOrigin(fs, asKCM+", which has many", "feature-gates")
	for _, ignored := range IgnoredFlags() {
		f := fs.VarPF(&ignoredValue{IgnoredFlag: ignored, given: &o.Given}, ignored.Name, "", "Ignored: it configures "+ignored.Of+".")
		if ignored.IsSwitch {
			f.NoOptDefVal = "true"
		}
		f.Hidden = true
		SetOrigin(fs, asKCM, ignored.Name)
	}
}

// Validate returns every problem of the group.
func (o *Ignored) Validate() []error {
	var p Problems
	for _, gate := range o.gates() {
		name, value, _ := strings.Cut(gate, "=")
		if _, err := strconv.ParseBool(strings.TrimSpace(value)); err != nil || strings.TrimSpace(name) == "" {
			p.Add("feature-gates", gate, "must have the form name=true or name=false")
		}
	}
	if !o.Strict {
		return p
	}
	for _, name := range o.Given {
		p = append(p, fmt.Errorf("--%s is ignored by this program, and --strict-flags refuses such flags", name))
	}
	if len(o.gates()) > 0 {
		p.Add("feature-gates", strings.Join(o.gates(), ","), "must be empty with --strict-flags: this program has no feature gates")
	}
	return p
}

// gates returns the feature gates of all components, sorted by name.
func (o *Ignored) gates() []string {
	var gates []string
	for _, pairs := range o.FeatureGates {
		gates = append(gates, pairs...)
	}
	slices.Sort(gates)
	return gates
}

// Warn logs ignored flags and feature gates, in one line each.
func (o *Ignored) Warn(logger logr.Logger) {
	if len(o.Given) > 0 {
		logger.Info("Ignoring flags of kube-controller-manager that have no meaning here, --strict-flags refuses them", "flags", o.Given)
	}
	if gates := o.gates(); len(gates) > 0 {
		logger.Info("Ignoring feature gates because this program has none", "featureGates", gates)
	}
}

// IgnoredFlag is a flag of KCM that concerns none of what runs here.
type IgnoredFlag struct {
	Name string
	// Of is what it is about, for the documentation.
	Of string
	// IsSwitch may stand without a value.
	IsSwitch bool
}

//go:embed ignored.txt
var ignoredList string

// IgnoredFlags returns the flags of KCM that have no effect here. A test compares them with the real binary.
func IgnoredFlags() []IgnoredFlag {
	var flags []IgnoredFlag
	about := ""
	for line := range strings.Lines(ignoredList) {
		line = strings.TrimSpace(line)
		if heading, ok := strings.CutPrefix(line, "["); ok {
			about = strings.TrimSuffix(heading, "]") // most names say what they are about
		} else if name, kind, _ := strings.Cut(line, " "); name != "" && name != "#" {
			flags = append(flags, IgnoredFlag{Name: name, Of: about, IsSwitch: kind == "switch"})
		}
	}
	return flags
}
