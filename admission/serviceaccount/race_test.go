// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build race

package serviceaccount_test

// slowdown is how many times the race detector may multiply the CPU time of a call.
const slowdown = 10
