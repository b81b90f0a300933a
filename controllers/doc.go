// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controllers is the root of the controllers. It holds no code; this comment says
// which controllers exist and which object fields each one owns. They run on the leader.
//
//   - serviceaccount creates the named ServiceAccounts in every Active namespace and owns
//     nothing of them afterwards.
//   - tokencontroller owns data.token, data["ca.crt"], data.namespace and the two
//     kubernetes.io/service-account.* annotations of token Secrets, creates one for each
//     account in auto mode, deletes those whose account is gone, and owns those entries of a
//     ServiceAccount's secrets list that a token controller wrote.
//   - legacytokencleaner owns the label kubernetes.io/legacy-token-invalid-since of token
//     Secrets that an account references or that were replaced, and deletes those that have
//     had it for long.
//   - rootca has three: the BundleController owns the data of Secret
//     kube-system/sa-controller-manager-root-ca, the Publisher owns data, binaryData and the
//     annotation kubernetes.io/description of ConfigMap kube-root-ca.crt in every namespace, and the
//     TrustBundlePublisher owns the ClusterTrustBundle of kube-apiserver's signer that it wrote, and
//     deletes its predecessors.
//   - keyprobe, on every replica, asks kube-apiserver to accept a token of a changed key, and
//     decides when the key of a private key file begins to sign. It writes no object.
//
// The others never import these extras:
//
//   - keyring/reissue owns the Secrets that it makes to replace others until they are
//     referenced, and the first entry of a ServiceAccount's secrets list.
//   - keyring/hosts, on every replica, owns the lines of Secret
//     kube-system/sa-controller-manager-key-ring.
//   - keyring/operator changes the key ring file, for the commands, which write to that Secret too.
//   - audit lists the long-lived tokens of a cluster with findings, for a command. It writes nothing.
//   - keyring/relying writes no object of the cluster. It keeps the published keys of the issuer,
//     in directories of each host, equal to the key ring.
//
// They share tokensecrets, the model of a token Secret; informers, the watches and what is cached
// of each object; and internal: reconcile is their queue, events records Events, stateobject is
// the codec of their two Secrets in kube-system. Only tests use controllertest.
//
// Data flows one way: watch -> handler (computes a key, nothing else) -> queue ->
// reconcile -> sync -> lister -> plan (pure) -> one write.
package controllers
