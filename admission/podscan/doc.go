// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podscan finds the Pods that were admitted without what the ServiceAccount
// plugin owes them, and names the commands that have controllers create them again.
//
// Such a Pod was created while nobody called the webhook: before it was registered, or
// while a person had taken it out. It stays as it is, because a Pod's account and
// volumes cannot be changed.
//
// What is a miss is decided by the plugin's own rules (serviceaccount.Config.MissingFrom), as
// far as the past can be known:
//
//   - A Pod without an account name is one for certain: the plugin names an account in
//     every Pod, and so does kube-apiserver's own.
//   - A Pod that names an account and mounts a token nowhere, although Pod and account
//     want it, is one too. But what counts is what the account wanted when the Pod was
//     created, and only its managedFields tell about that. An account that somebody has
//     changed since makes the Pod an uncertain one, unless the Pod itself insists on a
//     token. An account that is younger than the Pod does not: the plugin would have
//     refused a Pod whose account does not exist.
//   - A Pod in which one container has a token and another has none is no miss: the
//     other one was added by somebody who came later.
//
// No misses are Pods that want no token, that bring their own, that have ended or are
// about to, mirror pods, and those of namespaces that the registration excludes. What
// cannot be told at all: which pull secrets an account had, whether a token Secret
// existed where none is required, what an account wanted that is gone or was deleted and
// made anew, and that somebody took automountServiceAccountToken: false back in a way that
// left no trace.
//
// Finder lists Pods in pages and keeps nothing. Scanner has it do so on the leader, once
// after each time that the registration has become right; in between it sends nothing.
// Remedies are for the user to type. None of them may remove a Pod that no controller is
// known to create again.
package podscan
