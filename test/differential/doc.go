// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package differential compares the ServiceAccount plugin with kube-apiserver's own,
// compiled from k8s.io/kubernetes, over random Pods and accounts: the same stored Pod,
// or the same refusal.
//
// It is a module of its own, because k8s.io/kubernetes pins the versions of all other
// modules of Kubernetes.
package differential
