// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package keyring is the door to all that a key ring needs besides the core. It holds no code; this comment
// tells the way of a key, from "keys init" to "keys prune". No package of the core imports one of this tree.
//
//  1. A step. A command reads its flags, and operator has the step. It asks kube-apiservers and the other hosts
//     whether the step breaks something, claims the next generation, and changes the file.
//  2. The file. ring has the states of a key (next, active, retired), the transitions between them as functions,
//     and the file. "keys init" writes an active key and a next one. A key of another process, such as an HSM's,
//     is in the file with its public half: remote finds that process by its socket and has it sign.
//  3. In use. The manager opens the file as a signing.Store, and package signing/reload follows it. Each change
//     becomes the ring of signing.Keyring, with which tokens.Issuer signs the tokens of Secrets, and external,
//     at its socket, those that kube-apiserver issues.
//  4. Published. The next key must be known before it signs. hosts writes the ring of this host, without keys,
//     beside those of the other hosts, and compares them: a host that is late, restored or forked, and what every
//     host has revoked. relying writes the public keys where verifiers outside of the cluster read them.
//  5. Rotated. "keys rotate" makes the next key active, once operator finds that every host has it, every
//     kube-apiserver accepts it and no cache lacks it. "keys import" brings the file to the other hosts; until
//     then hosts lets them sign with their own copy of that key. Whether the key may sign is asked before each
//     token (signing.Guard), of hosts and of package keyprobe, which is of the core.
//  6. Retired. The previous key verifies and signs no more. reissue replaces the token Secrets that have its
//     tokens, and hosts records since when nothing signs with it.
//  7. Pruned. "keys prune" removes it when operator finds no Secret and no signer with it, and no bound token
//     of it can be valid. "keys revoke" removes a key immediately: hosts publishes that first, and every host
//     applies it before its file is changed.
//
// What must never happen: a host that refuses the token of another one for want of a key; a revoked key that
// verifies again; an older file that is not noticed. TestThreeHosts of hosts looks for them.
package keyring
