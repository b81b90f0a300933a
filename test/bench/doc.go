// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bench measures the hot paths of the product beside their floors and beside
// what kube-controller-manager does in their place, in one run on one machine: a ratio
// says something where a time does not. "make bench" runs it, with the benchmarks that
// stand beside the code because they need its insides.
package bench
