// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package registration tests the registration and the certificates of the webhook on a real
// kube-apiserver, inside the process of the test.
package registration
