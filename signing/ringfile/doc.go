// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ringfile keeps a key ring in one file: each key as PEM, with its role and its times.
// Package rotation has the transitions.
//
// Open returns the signing.Store of the file. It reads one immutable, validated state; an inconsistent
// file is an error.
//
// The commands write: Init, Update, Import and Join. A writer holds a lock on a file beside the ring
// file and replaces the ring file by rename. The kernel releases the lock when the process ends. So a
// writer that is killed leaves the old content or the new one, and a temporary file that the next
// writer removes.
//
// Because the file is replaced, a container must mount its directory and never the file itself: a
// mounted file keeps its old content. A file that cannot be written, such as one of a mounted Secret,
// is read like any other. Writers return a ReadOnlyError.
//
// Concurrency: a File may be used by several goroutines and processes. Writers exclude each other;
// readers never wait.
//
// What must never happen: a private key in a file that others may read, in an error or in any other
// text; an older ring in place of a newer one.
package ringfile
