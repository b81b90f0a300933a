// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replicas rotates keys beside two kube-apiservers on hosts of their own, which are made from
// namespaces of Linux. That takes root; without it the test is skipped.
package replicas
