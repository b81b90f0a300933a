// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package simulation has the product's parts, in two replicas, work in a world of some virtual minutes: a model of the
// API server (package model), users and faults, all in one process and in a testing/synctest bubble. A seed decides
// what users do, when each request is answered and what becomes of it. Operations and checks are those of the fault
// suite (packages workload and checker). The signing key stays the same: a rotation waits for files and for several
// kube-apiservers, of which this world has none (TestRotateOnTwoNodes has them).
//
// It is a module of its own, because k8s.io/kubernetes, whose controllers it can run in place of the product's, pins
// the versions of all other modules of Kubernetes.
package simulation
