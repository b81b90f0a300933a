// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
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

// IgnoredFlags is every flag of KCM v1.37.2 and v1.36.3 that has no effect here, and
// the two that KCM still takes and no longer shows. A test compares the list with
// the real binary.
func IgnoredFlags() []IgnoredFlag {
	var flags []IgnoredFlag
	for _, group := range ignoredGroups() {
		for name := range strings.FieldsSeq(group.values) {
			flags = append(flags, IgnoredFlag{Name: name, Of: group.of})
		}
		for name := range strings.FieldsSeq(group.switches) {
			flags = append(flags, IgnoredFlag{Name: name, Of: group.of, IsSwitch: true})
		}
	}
	return flags
}

// ignoredGroup lists names, separated by spaces.
type ignoredGroup struct{ of, values, switches string }

// ignoredGroups has the reasons that differ; most names say what they are about.
func ignoredGroups() []ignoredGroup {
	return []ignoredGroup{
		{of: "other controllers",
			values: "attach-detach-reconcile-sync-period cidr-allocator-type cloud-config cloud-provider cluster-cidr cluster-name " +
				"cluster-signing-cert-file cluster-signing-duration cluster-signing-key-file " +
				"cluster-signing-kube-apiserver-client-cert-file cluster-signing-kube-apiserver-client-key-file " +
				"cluster-signing-kubelet-client-cert-file cluster-signing-kubelet-client-key-file " +
				"cluster-signing-kubelet-serving-cert-file cluster-signing-kubelet-serving-key-file " +
				"cluster-signing-legacy-unknown-cert-file cluster-signing-legacy-unknown-key-file concurrent-cron-job-syncs " +
				"concurrent-daemonset-syncs concurrent-deployment-syncs concurrent-device-taint-eviction-syncs " +
				"concurrent-disruption-syncs concurrent-endpoint-syncs concurrent-ephemeralvolume-syncs concurrent-gc-syncs " +
				"concurrent-horizontal-pod-autoscaler-syncs concurrent-job-syncs concurrent-namespace-syncs concurrent-rc-syncs " +
				"concurrent-replicaset-syncs concurrent-resource-quota-syncs concurrent-resourceclaim-syncs " +
				"concurrent-service-endpoint-syncs concurrent-service-syncs concurrent-statefulset-syncs " +
				"concurrent-ttl-after-finished-syncs concurrent-validating-admission-policy-status-syncs endpoint-updates-batch-period " +
				"endpointslice-updates-batch-period external-cloud-volume-plugin flex-volume-plugin-dir " +
				"horizontal-pod-autoscaler-cpu-initialization-period horizontal-pod-autoscaler-downscale-stabilization " +
				"horizontal-pod-autoscaler-initial-readiness-delay horizontal-pod-autoscaler-sync-period " +
				"horizontal-pod-autoscaler-tolerance large-cluster-size-threshold max-endpoints-per-slice " +
				"mirroring-concurrent-service-endpoint-syncs mirroring-endpointslice-updates-batch-period " +
				"mirroring-max-endpoints-per-subset namespace-sync-period node-cidr-mask-size node-cidr-mask-size-ipv4 " +
				"node-cidr-mask-size-ipv6 node-eviction-rate node-monitor-grace-period node-monitor-period node-startup-grace-period " +
				"node-sync-period pv-recycler-increment-timeout-nfs pv-recycler-minimum-timeout-hostpath " +
				"pv-recycler-minimum-timeout-nfs pv-recycler-pod-template-filepath-hostpath " +
				"pv-recycler-pod-template-filepath-nfs pv-recycler-timeout-increment-hostpath pvclaimbinder-sync-period " +
				"resource-quota-sync-period route-reconciliation-period secondary-node-eviction-rate " +
				"service-cluster-ip-range terminated-pod-gc-threshold unhealthy-zone-threshold",
			switches: "allocate-node-cidrs allow-untagged-cloud configure-cloud-routes disable-attach-detach-reconcile-sync " +
				"disable-force-detach-on-timeout enable-dynamic-provisioning enable-garbage-collector enable-hostpath-provisioner"},
		{of: "moving controllers between processes",
			values:   "leader-migration-config",
			switches: "enable-leader-migration"},
		{of: "the process itself, where KCM differs",
			values: "controller-shutdown-timeout controller-start-interval emulated-version leader-elect-resource-lock " +
				"min-compatibility-version",
			switches: "authentication-tolerate-lookup-failure use-service-account-credentials"},
	}
}
