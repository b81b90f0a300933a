// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package external lets kube-apiserver sign its bound tokens with the keys of this process: it is
// the server of KEP-740 (kube-apiserver --service-account-signing-endpoint), gRPC over a unix
// socket. kube-apiserver then holds no private key, and learns of new and removed keys without a
// restart.
//
// The life of a Server:
//
//  1. Listen takes the socket: a lock beside it says that no other process has it, a file left by
//     one that died is replaced. It asks nothing of the API, because kube-apiserver itself waits
//     for this socket at its start (60 s, then it exits).
//  2. Run answers until its context ends. Sign takes what Config.Check lets through (the claim
//     policy of package tokens) and nothing else, FetchKeys gives the keys of a signing.KeySource,
//     Metadata gives the longest lifetime of a token.
//  3. Then no new call is taken, those under way are finished, and the socket file is removed.
//     kube-apiserver waits meanwhile, with the keys it has: calls with tokens go on, only
//     TokenRequests are held up.
//
// v1 and v1alpha1 of the service are the same on the wire, and one implementation answers both.
//
// Concurrency: calls are answered side by side. Keys come from an immutable snapshot, signing is
// left to the signing.Signer; as many signatures are made at a time as there are processors, the
// others wait.
//
// What others can hold on to is bounded: connections that say nothing, connections that call, and
// the calls of each. The first callers keep their places, which is how a kube-apiserver outlasts a
// flood.
//
// Who may call: processes of the allowed users, as the kernel names them (SO_PEERCRED). Whoever may
// call can have a token made for any account, so the socket is as precious as the private key.
//
// What must never happen: a payload, a claim's value or key material in an error, a log line or a
// metric; a signature under anything that is not a bound token.
package external
