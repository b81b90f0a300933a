// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replicas tests several replicas on a real control plane: behind a Service while a client
// creates Pods, and beside two kube-apiservers on hosts of their own.
//
// The hosts are made from namespaces of Linux, which takes root. Without it that test is skipped.
package replicas
