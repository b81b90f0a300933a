// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ring is the key ring: a State says which keys there are, which one signs and what may happen to
// them next, and a File keeps it. It is the home of the rules what a rotation may do to a key
// (transitions.go), which ring follows which (file.go), and what a ring file may have in it (validate.go).
// Whether a rotation may happen now is asked of the other hosts, by package keyring/hosts, and of
// kube-apiserver, by package keyring/operator.
//
// One key is always ahead: the next key verifies and is published long before it signs. Rotate makes it
// the active one and adds the one after it; the previous one is retired, which verifies and signs no
// more. Rollback goes back to that, once. Next replaces the next key. Prune removes a retired key, and
// refuses while there may be tokens of it; Revoke removes any key for good. Join ends a fork.
//
// Every transition is a function of the state, a time and the operator's choices. It returns a new
// state, or a *Refusal that says what to do instead; it changes nothing of what it was given.
//
// The manager reads: Open returns the signing.Store of a file, with one immutable, validated state; an
// inconsistent file is an error. The commands write: Init, Update, Import and Join. A writer holds a lock
// on a file beside the ring file and replaces the ring file by rename. The kernel releases the lock when
// the process ends. So a writer that is killed leaves the old content or the new one, and a temporary
// file that the next writer removes. Because the file is replaced, a container must mount its directory
// and never the file itself: a mounted file keeps its old content. A file that cannot be written, such as
// one of a mounted Secret, is read like any other. Writers return an error.
//
// Concurrency: a File may be used by several goroutines and processes. Writers exclude each other;
// readers never wait.
//
// What must never happen: no active key or two of them; an active key that is not published; a key that
// has signed and is gone without having been pruned; an older ring in place of a newer one; a private
// key in a file that others may read, in an error or in any other text.
package ring
