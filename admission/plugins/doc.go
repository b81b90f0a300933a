// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plugins holds the small admission plugins. All are off by default.
//
// They have the names and the message texts that they have, or had, in kube-apiserver. Each has one
// function that is an admission.Factory or makes one. Plugins do not change once built and may be
// called from several goroutines.
//
// None of them mutates. A refusal by one of them must not depend on another one.
package plugins
