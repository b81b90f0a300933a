// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package reload keeps the parsed content of one file up to date.
//
// Open reads and parses the file, so that a process refuses to start with a bad file. Watch then
// follows it: it reads a changed file until two readings agree, parses it, and only then replaces the
// value, so Get never returns a half-written or bad file. While the file is bad or missing the
// previous value stays, and Watch reports that once.
//
// The directory is watched, not the file, because the ways in which files change replace the file
// or a link above it: editors rename, and kubelet swaps the ..data link of a Secret volume. A poll
// runs beside it, for file systems without notifications, for links that lead out of the directory,
// and for machines that have no inotify instances left.
//
// Concurrency: Get may be called from anywhere at any time. Watch is called once, and calls both
// callbacks from its own goroutine, one at a time.
//
// OpenKeyFile makes the signing.Store of a PEM file with a single key.
//
// What must never happen: content of the file in an error. This package adds the path and what is
// wrong with the file; parse functions must keep to the same rule.
package reload
