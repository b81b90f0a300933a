// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rootca publishes the root CA bundle that clients inside the cluster verify
// kube-apiserver with.
//
// A Source holds the one bundle in force. It feeds every consumer, so that token Secrets
// and ConfigMaps can never disagree about it. A BundleController decides what that bundle
// is: the content of the file and, for the time of the overlap, what the file held before.
// A Publisher writes it into ConfigMap kube-root-ca.crt of every Active namespace.
// BundleController and Publisher run on the leader only.
//
// What is in overlap, and until when, is kept in a Secret in kube-system, the state. It
// is never read back from kube-root-ca.crt, which everybody who may edit a namespace can
// write. No bundle is ever empty or invalid, and while the state is unknown none that is
// published is replaced by a smaller one, for a bounded time.
//
// A Source is safe for concurrent use.
package rootca
