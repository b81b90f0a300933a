// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ringfile keeps a key ring in one file: what each key is for, since when, and the key
// itself as PEM (package rotation says what may happen to it).
//
// Open returns the signing.Store of the file. It reads one immutable, validated state; an inconsistent
// file is an error.
//
// The commands write: Init, Update and Import. A writer holds a lock, on a file beside the ring
// file, that dies with its process, and replaces the ring file by rename. So a writer that is
// killed leaves the old content or the new one, and a temporary file that the next writer removes.
//
// Because the file is replaced, a container must mount its directory and never the file itself: a
// mounted file stays the old one. A file that cannot be written, such as one of a mounted Secret,
// is read like any other. Writers refuse it and say so.
//
// Concurrency: a File may be used by several goroutines and processes. Writers exclude each other;
// readers never wait.
//
// What must never happen: a private key in a file that others may read, in an error or in any other
// text; an older ring in place of a newer one.
package ringfile
