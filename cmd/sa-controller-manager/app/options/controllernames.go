// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

// The controllers of this binary, under their names in KCM.
const (
	ServiceAccountController         = "serviceaccount-controller"
	ServiceAccountTokenController    = "serviceaccount-token-controller"
	RootCACertificatePublisher       = "root-ca-certificate-publisher-controller"
	LegacyServiceAccountTokenCleaner = "legacy-serviceaccount-token-cleaner-controller"
)

// home is the binary that runs a controller.
type home int

const (
	keptByKCM home = iota
	servedHere
)

// knownController is a controller that KCM accepts in --controllers, with its alias, an older name.
// No controller has more than one alias.
type knownController struct {
	name, alias string
	home        home
}

// knownControllers returns every controller of KCM v1.37.2 and v1.36.3, so that a --controllers value for
// either works here. Source of the names: cmd/kube-controller-manager/names and, for the three of the
// cloud, k8s.io/cloud-provider/names of v1.36; of the aliases: the descriptors in
// cmd/kube-controller-manager/app.
func knownControllers() []knownController {
	return []knownController{
		// Service account identity.
		{ServiceAccountController, "serviceaccount", servedHere},
		{ServiceAccountTokenController, "serviceaccount-token", servedHere},
		{RootCACertificatePublisher, "root-ca-cert-publisher", servedHere},
		{LegacyServiceAccountTokenCleaner, "legacy-service-account-token-cleaner", servedHere},

		// Workloads.
		{name: "cronjob-controller", alias: "cronjob"},
		{name: "daemonset-controller", alias: "daemonset"},
		{name: "deployment-controller", alias: "deployment"},
		{name: "disruption-controller", alias: "disruption"},
		{name: "horizontal-pod-autoscaler-controller", alias: "horizontalpodautoscaling"},
		{name: "job-controller", alias: "job"},
		{name: "pod-garbage-collector-controller", alias: "podgc"},
		{name: "podgroup-protection-controller"},
		{name: "replicaset-controller", alias: "replicaset"},
		{name: "replicationcontroller-controller", alias: "replicationcontroller"},
		{name: "statefulset-controller", alias: "statefulset"},
		{name: "ttl-after-finished-controller", alias: "ttl-after-finished"},

		// Nodes and devices.
		{name: "device-taint-eviction-controller"},
		{name: "node-ipam-controller", alias: "nodeipam"},
		{name: "node-lifecycle-controller", alias: "nodelifecycle"},
		{name: "resourceclaim-controller", alias: "resource-claim-controller"},
		{name: "resourcepoolstatusrequest-controller"},
		{name: "taint-eviction-controller"},
		{name: "ttl-controller", alias: "ttl"},

		// Network.
		{name: "endpoints-controller", alias: "endpoint"},
		{name: "endpointslice-controller", alias: "endpointslice"},
		{name: "endpointslice-mirroring-controller", alias: "endpointslicemirroring"},
		{name: "service-cidr-controller"},

		// Storage.
		{name: "ephemeral-volume-controller", alias: "ephemeral-volume"},
		{name: "persistentvolume-attach-detach-controller", alias: "attachdetach"},
		{name: "persistentvolume-binder-controller", alias: "persistentvolume-binder"},
		{name: "persistentvolume-expander-controller", alias: "persistentvolume-expander"},
		{name: "persistentvolume-protection-controller", alias: "pv-protection"},
		{name: "persistentvolumeclaim-protection-controller", alias: "pvc-protection"},
		{name: "selinux-warning-controller"},
		{name: "volumeattributesclass-protection-controller"},

		// Certificates and bootstrap. kubeadm enables the last two by alias; they handle bootstrap
		// tokens, not ServiceAccount tokens.
		{name: "certificatesigningrequest-approving-controller", alias: "csrapproving"},
		{name: "certificatesigningrequest-cleaner-controller", alias: "csrcleaner"},
		{name: "certificatesigningrequest-signing-controller", alias: "csrsigning"},
		{name: "kube-apiserver-serving-clustertrustbundle-publisher-controller"},
		{name: "podcertificaterequest-cleaner-controller"},
		{name: "bootstrap-signer-controller", alias: "bootstrapsigner"},
		{name: "token-cleaner-controller", alias: "tokencleaner"},

		// The API itself.
		{name: "clusterrole-aggregation-controller", alias: "clusterrole-aggregation"},
		{name: "garbage-collector-controller", alias: "garbagecollector"},
		{name: "namespace-controller", alias: "namespace"},
		{name: "resourcequota-controller", alias: "resourcequota"},
		{name: "storage-version-migrator-controller", alias: "svm"},
		{name: "storageversion-garbage-collector-controller", alias: "storage-version-gc"},
		{name: "validatingadmissionpolicy-status-controller"},

		// Cloud providers. KCM v1.36 accepts the names and runs none of these controllers; v1.37 has no
		// such names.
		{name: "cloud-node-lifecycle-controller", alias: "cloud-node-lifecycle"},
		{name: "node-route-controller", alias: "route"},
		{name: "service-lb-controller", alias: "service"},
	}
}
