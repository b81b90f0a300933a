// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podscan finds the Pods that were admitted without the webhook and miss what the
// ServiceAccount plugin would have added. It also names the commands that make controllers create
// them again.
//
// Such a Pod was created while kube-apiserver did not call the webhook: before it was registered,
// or while a user had switched it off. A Pod's account and volumes cannot be changed afterwards.
//
// The plugin's own rules (serviceaccount.Config.MissingFrom) decide which Pods were missed, as far
// as the past is known:
//
//   - A Pod without an account name was certainly missed: the plugin sets the account of every
//     Pod, and so does kube-apiserver's own.
//   - A Pod with an account name but without any token mount was missed if Pod and account want a
//     token. But the account's wish at the time of the Pod's creation counts, and only its
//     managedFields tell. If the account has changed since then, the Pod is uncertain, unless the
//     Pod itself requests a token. An account younger than the Pod does not count as changed:
//     the plugin would have refused a Pod whose account does not exist.
//   - A Pod with a token in one container and none in another was not missed: the other container
//     was added later.
//
// Not missed are Pods that want no token, that bring their own, that have ended or are being
// deleted, mirror pods, and Pods in namespaces that the registration excludes. Unknown are: which
// pull secrets an account had, whether a token Secret existed if none is required, the wishes of an
// account that is gone or was recreated, and a removal of automountServiceAccountToken: false that
// left no trace.
//
// Finder lists Pods in pages and keeps nothing. Users type the Remedies. None of them may delete a
// Pod that no known controller creates again.
package podscan
