// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import "strings"

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
				"concurrent-daemonset-syncs concurrent-deployment-syncs concurrent-device-taint-eviction-syncs concurrent-disruption-syncs " +
				"concurrent-endpoint-syncs concurrent-ephemeralvolume-syncs concurrent-gc-syncs " +
				"concurrent-horizontal-pod-autoscaler-syncs concurrent-job-syncs concurrent-namespace-syncs concurrent-rc-syncs " +
				"concurrent-replicaset-syncs concurrent-resource-quota-syncs concurrent-resourceclaim-syncs " +
				"concurrent-service-endpoint-syncs concurrent-service-syncs concurrent-statefulset-syncs " +
				"concurrent-ttl-after-finished-syncs concurrent-validating-admission-policy-status-syncs " +
				"endpoint-updates-batch-period endpointslice-updates-batch-period external-cloud-volume-plugin " +
				"flex-volume-plugin-dir horizontal-pod-autoscaler-cpu-initialization-period " +
				"horizontal-pod-autoscaler-downscale-stabilization horizontal-pod-autoscaler-initial-readiness-delay " +
				"horizontal-pod-autoscaler-sync-period horizontal-pod-autoscaler-tolerance large-cluster-size-threshold " +
				"max-endpoints-per-slice mirroring-concurrent-service-endpoint-syncs mirroring-endpointslice-updates-batch-period " +
				"mirroring-max-endpoints-per-subset namespace-sync-period node-cidr-mask-size node-cidr-mask-size-ipv4 " +
				"node-cidr-mask-size-ipv6 node-eviction-rate node-monitor-grace-period node-monitor-period " +
				"node-startup-grace-period node-sync-period pv-recycler-increment-timeout-nfs " +
				"pv-recycler-minimum-timeout-hostpath pv-recycler-minimum-timeout-nfs pv-recycler-pod-template-filepath-hostpath " +
				"pv-recycler-pod-template-filepath-nfs pv-recycler-timeout-increment-hostpath pvclaimbinder-sync-period " +
				"resource-quota-sync-period route-reconciliation-period secondary-node-eviction-rate service-cluster-ip-range " +
				"terminated-pod-gc-threshold unhealthy-zone-threshold",
			switches: "allocate-node-cidrs allow-untagged-cloud configure-cloud-routes disable-attach-detach-reconcile-sync " +
				"disable-force-detach-on-timeout enable-dynamic-provisioning enable-garbage-collector enable-hostpath-provisioner"},
		{of: "moving controllers between processes",
			values:   "leader-migration-config",
			switches: "enable-leader-migration"},
		{of: "the process itself, where KCM differs",
			values: "controller-shutdown-timeout controller-start-interval emulated-version leader-elect-resource-lock " +
				"min-compatibility-version",
			switches: "authentication-tolerate-lookup-failure permit-address-sharing permit-port-sharing " +
				"use-service-account-credentials"},
	}
}
