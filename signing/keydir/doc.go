// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package keydir keeps a key ring in a directory: one PEM file for each key, and ring.json, which says what each key is for
// (package rotation).
//
// Whoever signs or verifies reads: Read once, or Follow for as long as the process lives. What is read is one immutable,
// validated Snapshot of everything; a directory in which anything does not fit together gives an error and no part of it.
//
// The commands write: Init, Publish and Update. A writer holds a lock that dies with its process, writes each file under
// another name and renames it, and records the name of every key file in ring.json before the file exists and until it is gone.
// So a writer that is killed leaves a directory that reads as before or as after, and the next writer clears up what it left.
//
// The order of a writer's steps is what this rests on. A key file is there before ring.json names its key, and it is removed
// after ring.json has ceased to. ring.json is replaced by rename, and the directory is synced after each rename.
//
// A directory that cannot be written to, such as a mounted Secret, is read like any other. Writers refuse it and say so.
//
// Concurrency: a Dir may be used by several goroutines and processes. Writers exclude each other; readers never wait.
//
// What must never happen: a private key in a file that others may read, in an error or in any other text; a ring.json that
// names a file which is not there; a key file removed that ring.json does not call a leftover.
package keydir
