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

// ignoredGroups has the groups of KCM's --help, except that its generic flags are
// told apart.
//
//nolint:funlen // it is a table
func ignoredGroups() []ignoredGroup {
	return []ignoredGroup{
		{of: "cloud providers and nodes",
			values: "cidr-allocator-type cloud-config cloud-provider cluster-cidr cluster-name " +
				"external-cloud-volume-plugin node-monitor-period node-sync-period route-reconciliation-period",
			switches: "allocate-node-cidrs allow-untagged-cloud configure-cloud-routes"},
		{of: "service-lb-controller",
			values: "concurrent-service-syncs"},
		{of: "persistentvolume-attach-detach-controller",
			values:   "attach-detach-reconcile-sync-period",
			switches: "disable-attach-detach-reconcile-sync disable-force-detach-on-timeout"},
		{of: "certificatesigningrequest-signing-controller",
			values: "cluster-signing-cert-file cluster-signing-duration cluster-signing-key-file " +
				"cluster-signing-kube-apiserver-client-cert-file cluster-signing-kube-apiserver-client-key-file " +
				"cluster-signing-kubelet-client-cert-file cluster-signing-kubelet-client-key-file " +
				"cluster-signing-kubelet-serving-cert-file cluster-signing-kubelet-serving-key-file " +
				"cluster-signing-legacy-unknown-cert-file cluster-signing-legacy-unknown-key-file"},
		{of: "deployment-controller",
			values: "concurrent-deployment-syncs"},
		{of: "device-taint-eviction-controller",
			values: "concurrent-device-taint-eviction-syncs"},
		{of: "disruption-controller",
			values: "concurrent-disruption-syncs"},
		{of: "resourceclaim-controller",
			values: "concurrent-resourceclaim-syncs"},
		{of: "statefulset-controller",
			values: "concurrent-statefulset-syncs"},
		{of: "daemonset-controller",
			values: "concurrent-daemonset-syncs"},
		{of: "endpoints-controller",
			values: "concurrent-endpoint-syncs endpoint-updates-batch-period"},
		{of: "endpointslice-controller",
			values: "concurrent-service-endpoint-syncs endpointslice-updates-batch-period max-endpoints-per-slice"},
		{of: "endpointslice-mirroring-controller",
			values: "mirroring-concurrent-service-endpoint-syncs mirroring-endpointslice-updates-batch-period " +
				"mirroring-max-endpoints-per-subset"},
		{of: "ephemeral-volume-controller",
			values: "concurrent-ephemeralvolume-syncs"},
		{of: "garbage-collector-controller",
			values:   "concurrent-gc-syncs",
			switches: "enable-garbage-collector"},
		{of: "horizontal-pod-autoscaler-controller",
			values: "concurrent-horizontal-pod-autoscaler-syncs horizontal-pod-autoscaler-cpu-initialization-period " +
				"horizontal-pod-autoscaler-downscale-stabilization horizontal-pod-autoscaler-initial-readiness-delay " +
				"horizontal-pod-autoscaler-sync-period horizontal-pod-autoscaler-tolerance"},
		{of: "job-controller",
			values: "concurrent-job-syncs"},
		{of: "cronjob-controller",
			values: "concurrent-cron-job-syncs"},
		{of: "namespace-controller",
			values: "concurrent-namespace-syncs namespace-sync-period"},
		{of: "node-ipam-controller",
			values: "node-cidr-mask-size node-cidr-mask-size-ipv4 node-cidr-mask-size-ipv6 service-cluster-ip-range"},
		{of: "node-lifecycle-controller",
			values: "large-cluster-size-threshold node-eviction-rate node-monitor-grace-period node-startup-grace-period " +
				"secondary-node-eviction-rate unhealthy-zone-threshold"},
		{of: "persistentvolume-binder-controller",
			values: "flex-volume-plugin-dir pv-recycler-increment-timeout-nfs pv-recycler-minimum-timeout-hostpath " +
				"pv-recycler-minimum-timeout-nfs pv-recycler-pod-template-filepath-hostpath " +
				"pv-recycler-pod-template-filepath-nfs pv-recycler-timeout-increment-hostpath " +
				"pvclaimbinder-sync-period",
			switches: "enable-dynamic-provisioning enable-hostpath-provisioner"},
		{of: "pod-garbage-collector-controller",
			values: "terminated-pod-gc-threshold"},
		{of: "replicaset-controller",
			values: "concurrent-replicaset-syncs"},
		{of: "replicationcontroller-controller",
			values: "concurrent-rc-syncs"},
		{of: "resourcequota-controller",
			values: "concurrent-resource-quota-syncs resource-quota-sync-period"},
		{of: "ttl-after-finished-controller",
			values: "concurrent-ttl-after-finished-syncs"},
		{of: "validatingadmissionpolicy-status-controller",
			values: "concurrent-validating-admission-policy-status-syncs"},
		{of: "moving controllers between processes",
			values:   "leader-migration-config",
			switches: "enable-leader-migration"},
		{of: "the process itself, where KCM differs",
			values: "controller-shutdown-timeout controller-start-interval emulated-version leader-elect-resource-lock " +
				"min-compatibility-version",
			switches: "permit-address-sharing permit-port-sharing use-service-account-credentials"},
	}
}
