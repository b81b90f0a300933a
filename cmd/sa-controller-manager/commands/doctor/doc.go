// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package doctor checks the ServiceAccounts of a cluster, their tokens and the webhook, and
// prints each problem with its remedy.
//
// A check is a name and a function that asks the API and returns findings. Checks run one after
// the other, each with a timeout. A check that fails has the result "unknown", which is no
// finding, and the others still run. What several checks need is read once.
//
// Nothing is changed. Nothing that is created is stored: reviews, Pods with dryRun, and one
// token of ten minutes that is not kept. Tokens, keys and PEM must never get into a finding or an
// error: findings name objects, and keys by their ID.
//
// The packages that keep the cluster right define what is right: where one of them has a
// function for it, doctor calls that.
package doctor
