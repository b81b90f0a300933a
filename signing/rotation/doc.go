// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rotation is the state machine of the key ring: which keys there are, which one signs, and
// what may happen to them next.
//
// A rotation goes publish, wait, activate, re-issue, complete, prune:
//
//  1. Publish adds the next key. It verifies and is published, and does not sign: a verifier may use a
//     copy of the key set that is as old as Policy.CacheAge.
//  2. Activate makes the next key the active one. The previous one is retired: it verifies and
//     signs no more.
//  3. Complete records that every process follows and that no Rollback is expected. Package
//     keyring/reissue replaces the token Secrets of the previous key from Activate on.
//  4. Prune removes a retired key from the ring. Its tokens are refused from then on, so Prune
//     refuses while there may be any.
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
