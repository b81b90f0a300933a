// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replicas tests several replicas on a real control plane while clients create
// Pods: beside two kube-apiservers on hosts of their own, and of two versions of the
// binary.
//
// The hosts are made from namespaces of Linux, which takes root. The former version is the
// binary that SACM_FORMER_BINARY names; make test-upgrade builds it. Tests that lack the
// one or the other are skipped.
package replicas
