// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package registration tells kube-apiserver about the webhook: it keeps one
// MutatingWebhookConfiguration and one ValidatingWebhookConfiguration right.
//
// Three rules come before keeping them right.
//
// Nothing binds before it is proved. A webhook that the apiserver cannot reach stops
// every Pod of a cluster. So what is registered first matches one probe Pod only,
// which is then created with dryRun=All; the real rules are written once that call has
// come back with our answer. That of another replica will do where no other cluster can
// have given it (Config.Responder). Entries that are bound already stay as they are meanwhile
// and let the probe pass. The proof holds while the caBundle has a certificate in
// common with the one that was proved.
//
// Where each kube-apiserver calls the replica on its own host (Spec.PerHost), what nobody
// calls yet binds only once there is a replica beside each of them. They are known by
// their identity Leases, and replicas by their heartbeats: see HostReporter and hostCheck.
// What is bound stays bound, also when a host joins that has none.
//
// Break-glass wins. The annotation sa-controller-manager/registration=off on either
// object stops all writing until it is gone, whoever set it. It is looked for in the
// API itself before each write. An object that is deleted with it comes back without
// webhooks and with the annotation, unless the other one has it: the next leader could
// not know otherwise. One that is deleted without it is created again as it should be.
// Either happens after a second in which both watches catch up, and at most once in
// five minutes.
//
// A client that undoes each write does not get a race: after a few repairs at once, there is
// one per second.
//
// A HostReporter and a Registrar run on every replica. The Registrar watches the two objects by
// name and tells the serving CA of its replica what is registered (ServingCA). While it leads
// it takes the caBundle from there, decides in plan without a client and writes with the
// resourceVersion that it has decided on. Status and Check may be called from any goroutine.
package registration
