// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package permissions takes permissions away from the product, one by one, on a real
// control plane with RBAC, and holds it to saying which one is missing and going on. It
// holds tests only.
package permissions
