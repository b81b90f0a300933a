// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

// Look is the name of Check that package kubeadm still uses.
type Look = Check
