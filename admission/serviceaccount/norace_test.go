// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package serviceaccount_test

const slowdown = 1
