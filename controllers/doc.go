// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controllers is the root of the control loops. It holds no code; this
// comment says which loops exist and which object fields each one owns.
//
//   - serviceaccount creates the named ServiceAccounts in every Active namespace
//     and owns nothing of them afterwards.
//   - tokensecret owns data.token, data["ca.crt"], data.namespace and the two
//     kubernetes.io/service-account.* annotations of token Secrets, the life of
//     orphaned ones, and those entries of a ServiceAccount's secrets list that a
//     token controller wrote.
//   - legacytokencleaner owns the label kubernetes.io/legacy-token-invalid-since of
//     token Secrets that an account references or that were replaced, and ends the
//     life of those that have had it for long.
//   - rootca owns data, binaryData and the annotation kubernetes.io/description of
//     ConfigMap kube-root-ca.crt in every namespace, and ConfigMap
//     kube-system/sa-controller-manager-root-ca.
//   - tokenreissue owns the Secrets that it makes to replace others until they are
//     referenced, the head of a ServiceAccount's secrets list, data.token of token
//     Secrets that ask for re-issue in place, and ConfigMap
//     kube-system/sa-controller-manager-key-ring.
//   - keyprobe owns which loaded private key signs; it writes no object.
//
// They share internal/reconcile, which runs a sync function over a queue of keys,
// informers, the process's trimmed picture of the cluster, tokensecrets, which knows what
// a token Secret is, and internal/events, which records what an operator asks about. Each
// is built with New(Config) before the informers start and works in Run(ctx).
//
// Data flows one way: watch -> handler (computes a key, nothing else) -> queue ->
// reconcile -> sync -> lister -> plan (pure) -> one write.
package controllers
