// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package simulation has the product's parts, in two or three replicas, work in a world of some virtual minutes: a model
// of the API server (package model), users, other clients and faults, all in one process and in a testing/synctest
// bubble. A seed decides what users do, when each request is answered and what becomes of it. Operations and checks are
// those of the fault suite (packages workload and checker); besides, each write of a replica is judged when it happens
// (writes.go), and what its requests cost (price.go). The key ring is one object in memory, which each replica takes in
// its own time: files, sockets and several kube-apiservers are for TestRotateOnTwoNodes.
//
// It is a module of its own, because k8s.io/kubernetes, whose controllers it can run in place of the product's, pins
// the versions of all other modules of Kubernetes.
package simulation
