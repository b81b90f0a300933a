// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package conformance runs upstream's own specs for ServiceAccounts, those of
// k8s.io/kubernetes/test/e2e/auth, against a control plane in which
// sa-controller-manager has taken the place of the ServiceAccount controllers of
// kube-controller-manager and of the admission plugin of kube-apiserver.
//
//	make conformance                                        # a control plane of its own
//	make conformance KUBECONFIG=PATH SPECS=specs-nodes.txt  # a cluster that is there
//
// Which specs run is listed in a file, and all of the list must pass: a spec that has
// vanished from upstream, or that skips itself, is a failure. It is a module of its own
// because it compiles against k8s.io/kubernetes.
package conformance
