// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package doctor looks at a cluster and says what is wrong with its ServiceAccounts,
// their tokens and the webhook, and what mends it.
//
// A Check is a name and a function that asks the API and returns findings. Checks run
// one after the other, each for a limited time. One that fails, or breaks, has not been
// able to tell, which is no finding; the others run all the same. What several of them
// read is read once.
//
// Nothing is changed. What is created is never stored: reviews, Pods with dryRun, and
// one token of ten minutes that nobody keeps. Tokens, keys and PEM must never get into a
// finding or an error: objects are named, keys by their ID.
//
// The rules of what is right are those of the packages that keep it so; where one of
// these has a function for it, that is called.
package doctor
