// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controllers is the root of the controllers. It holds no code; this comment says
// which controllers exist and which object fields each one owns. They run on the leader.
//
//   - serviceaccount creates the named ServiceAccounts in every Active namespace and owns
//     nothing of them afterwards.
//   - tokensecret owns data.token, data["ca.crt"], data.namespace and the two
//     kubernetes.io/service-account.* annotations of token Secrets, creates one for each
//     account in auto mode, deletes those whose account is gone, and owns those entries of a
//     ServiceAccount's secrets list that a token controller wrote.
//   - legacytokencleaner owns the label kubernetes.io/legacy-token-invalid-since of token
//     Secrets that an account references or that were replaced, and deletes those that have
//     had it for long.
//   - rootca has two: the BundleController owns the data of Secret
//     kube-system/sa-controller-manager-root-ca, the Publisher owns data, binaryData and the
//     annotation kubernetes.io/description of ConfigMap kube-root-ca.crt in every namespace.
//   - tokenreissue owns the Secrets that it makes to replace others until they are
//     referenced, the first entry of a ServiceAccount's secrets list, data.token of token
//     Secrets that ask for re-issue in place, and ConfigMap
//     kube-system/sa-controller-manager-key-ring.
//   - keyprobe, on every replica, has kube-apiserver prove a changed key and decides when
//     that of a private key file signs. It writes no object.
//
// They share tokensecrets, which says what a token Secret is, informers, which says what is
// watched and what of it is kept, and internal: reconcile is their queue, events records
// what an operator asks about, stateobject is the codec of the two ConfigMaps in
// kube-system. controllertest is for their tests.
//
// Data flows one way: watch -> handler (computes a key, nothing else) -> queue ->
// reconcile -> sync -> lister -> plan (pure) -> one write.
package controllers
