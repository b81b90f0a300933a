// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import "strings"

// The controllers of this binary, under their names in KCM.
const (
	ServiceAccountController         = "serviceaccount-controller"
	ServiceAccountTokenController    = "serviceaccount-token-controller"
	RootCACertificatePublisher       = "root-ca-certificate-publisher-controller"
	LegacyServiceAccountTokenCleaner = "legacy-serviceaccount-token-cleaner-controller"
	ClusterTrustBundlePublisher      = "kube-apiserver-serving-clustertrustbundle-publisher-controller"
)

// knownController is a controller that KCM accepts in --controllers, with its alias, an older name.
// No controller has more than one alias.
type knownController struct {
	name, alias string
	here        bool // in this binary, not in KCM
}

// knownControllers returns every controller of KCM v1.37.2 and v1.36.3, so that a --controllers value for
// either works here. Source of the names: cmd/kube-controller-manager/names and, for the three of the
// cloud, k8s.io/cloud-provider/names of v1.36; of the aliases: the descriptors in
// cmd/kube-controller-manager/app.
func knownControllers() []knownController {
	known := []knownController{
		{ServiceAccountController, "serviceaccount", true},
		{ServiceAccountTokenController, "serviceaccount-token", true},
		{RootCACertificatePublisher, "root-ca-cert-publisher", true},
		{LegacyServiceAccountTokenCleaner, "legacy-service-account-token-cleaner", true},
		{ClusterTrustBundlePublisher, "", true},
	}
	for text := range strings.FieldsSeq(kcmControllers) {
		name, alias, _ := strings.Cut(text, "=")
		known = append(known, knownController{name: name, alias: alias})
	}
	return known
}

// kcmControllers are those of KCM alone, each as its name or as name=alias.
const kcmControllers = "" +
	// Workloads.
	"cronjob-controller=cronjob daemonset-controller=daemonset deployment-controller=deployment disruption-controller=disruption " +
	"horizontal-pod-autoscaler-controller=horizontalpodautoscaling job-controller=job pod-garbage-collector-controller=podgc " +
	"podgroup-protection-controller replicaset-controller=replicaset replicationcontroller-controller=replicationcontroller " +
	"statefulset-controller=statefulset ttl-after-finished-controller=ttl-after-finished " +
	// Nodes and devices.
	"device-taint-eviction-controller node-ipam-controller=nodeipam node-lifecycle-controller=nodelifecycle " +
	"resourceclaim-controller=resource-claim-controller resourcepoolstatusrequest-controller taint-eviction-controller " +
	"ttl-controller=ttl " +
	// Network.
	"endpoints-controller=endpoint endpointslice-controller=endpointslice endpointslice-mirroring-controller=endpointslicemirroring " +
	"service-cidr-controller " +
	// Storage.
	"ephemeral-volume-controller=ephemeral-volume persistentvolume-attach-detach-controller=attachdetach " +
	"persistentvolume-binder-controller=persistentvolume-binder persistentvolume-expander-controller=persistentvolume-expander " +
	"persistentvolume-protection-controller=pv-protection persistentvolumeclaim-protection-controller=pvc-protection " +
	"selinux-warning-controller volumeattributesclass-protection-controller " +
	// Certificates and bootstrap. kubeadm enables the last two by alias; they handle bootstrap
	// tokens, not ServiceAccount tokens.
	"certificatesigningrequest-approving-controller=csrapproving certificatesigningrequest-cleaner-controller=csrcleaner " +
	"certificatesigningrequest-signing-controller=csrsigning " +
	"podcertificaterequest-cleaner-controller bootstrap-signer-controller=bootstrapsigner token-cleaner-controller=tokencleaner " +
	// The API itself.
	"clusterrole-aggregation-controller=clusterrole-aggregation garbage-collector-controller=garbagecollector " +
	"namespace-controller=namespace resourcequota-controller=resourcequota storage-version-migrator-controller=svm " +
	"storageversion-garbage-collector-controller=storage-version-gc validatingadmissionpolicy-status-controller " +
	// Cloud providers. KCM v1.36 accepts the names and runs none of these controllers; v1.37 has no
	// such names.
	"cloud-node-lifecycle-controller=cloud-node-lifecycle node-route-controller=route service-lb-controller=service"
