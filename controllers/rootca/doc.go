// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rootca publishes the root CA bundle that clients inside the cluster verify
// kube-apiserver with.
//
// A Source holds the current bundle for all consumers, so that token Secrets and ConfigMaps never
// disagree about it, and has another bundle in their objects replaced at one rate. A BundleController
// decides on the bundle: the content of the file and, during an overlap, its previous content. A
// Publisher writes the bundle into ConfigMap kube-root-ca.crt of every Active namespace, and a
// TrustBundlePublisher into the ClusterTrustBundle of kube-apiserver. All three run on the leader only.
//
// The previous certificates and the end of their overlap are kept in a Secret in kube-system, the
// state. They are never read back from kube-root-ca.crt, which every editor of a namespace can
// write. No bundle is ever empty or invalid. Nothing is replaced before the state was read; while it cannot be, only
// new namespaces get the file.
//
// A Source is safe for concurrent use once its Writers are registered.
package rootca
