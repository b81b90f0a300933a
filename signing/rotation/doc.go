// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rotation is the state machine of the key ring: which keys there are, which one signs, and
// what may happen to them next.
//
// A rotation goes publish, wait, activate, re-issue, complete, prune:
//
//  1. Publish adds the next key. It verifies and is published, and does not sign: whoever verifies
//     tokens may hold a copy of the key set that is as old as Policy.CacheAge.
//  2. Activate makes the next key the active one. The previous one is retired: it verifies and
//     signs no more.
//  3. Complete says that every process follows and that Rollback is not expected any more. Token
//     Secrets of the previous key are replaced from Activate on, by whoever reads the state.
//  4. Prune takes a retired key out of the ring. From then on its tokens are dead, so it asks
//     whether there are any.
//
// Rollback goes back from each of these points until the previous key is pruned.
//
// Every transition is a function of the state, a time and the operator's choices. It returns a new
// state, or a *Refusal that says what to do instead; it changes nothing of what it was given.
// Package ringfile keeps the state in a file.
//
// What must never happen: no active key or two of them; an active key that is not published; a key
// that has signed and is gone without having been pruned.
package rotation
