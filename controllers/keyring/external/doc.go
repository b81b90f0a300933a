// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package external signs the bound tokens of kube-apiserver with the keys of this process: it is the
// server of KEP-740 (kube-apiserver --service-account-signing-endpoint), gRPC over a unix socket.
// kube-apiserver then has no private key, and follows new and removed keys without a restart.
//
// The life of a Server:
//
//  1. Listen opens the socket. A lock file beside it excludes other processes, and the socket of a
//     dead process is replaced. Listen needs no API, because kube-apiserver waits for this socket
//     when it starts (60 s, then it exits).
//  2. Run serves until its context ends. Sign signs the payloads that Config.Check allows (package
//     tokens/policy), FetchKeys returns the keys of a signing.KeySource, Metadata returns the
//     longest lifetime of a token.
//  3. Then Run accepts no new calls, finishes those in progress, and removes the socket.
//     kube-apiserver continues to verify with the keys that it has; only TokenRequests wait.
//
// Calls are served concurrently. Keys come from an immutable snapshot.
//
// Idle connections, calling connections and the calls of each are bounded. The first callers keep
// their connections, so a kube-apiserver survives a flood of others.
//
// Only processes of the allowed users may call, as the kernel reports them (SO_PEERCRED). They can have
// a token signed for any account, so the socket needs the same protection as the private key.
//
// No error, log line or metric contains a payload, the value of a claim or key material, and nothing
// but a bound token is signed.
package external
