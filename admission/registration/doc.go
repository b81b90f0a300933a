// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package registration registers the webhook with kube-apiserver: it reconciles one
// MutatingWebhookConfiguration and one ValidatingWebhookConfiguration.
//
// Three rules come before keeping them correct.
//
// Nothing binds before it is proved. A webhook that the apiserver cannot reach blocks every Pod of
// a cluster. So the first entry matches one probe Pod only, which is then created with dryRun=All;
// the real rules are written once that call has returned our answer. The answer of another replica
// counts too, unless a replica of another cluster could have given it (Config.Responder). Meanwhile
// entries that are bound already stay, and exempt the probe. The proof holds while the caBundle has
// a certificate in common with the proved one.
//
// If each kube-apiserver calls the replica on its own host (Spec.PerHost), the first binding waits
// until there is a replica on each of their hosts. These hosts are known by identity Leases, the
// replicas by heartbeats: see HostReporter and hostCheck. A binding stays, even when a host without
// a replica joins.
//
// Break-glass wins. The annotation sa-controller-manager/registration=off on either object stops
// all writing until it is removed, no matter which client has set it. It is read from the API
// itself before each write. An object that is deleted with the annotation is created again with it
// and without webhooks, unless the other object has it: otherwise the next leader would not know.
// An object that is deleted without it is created again with its webhooks. Both happen after a
// second in which both watches catch up, and at most once in five minutes.
//
// If another client reverts each write, there are a few repairs at once and then one per second.
//
// With mode Static every replica keeps both configurations as files for the kube-apiserver of its own
// host instead (see StaticFiles): no API client can delete them, and they hold from its first request on.
// After a change of the mode both are there until the new one is in force on every host: then the leader
// deletes what is in the API, or each replica the files of its host.
//
// A HostReporter and a Registrar run on every replica. The Registrar watches the two objects by
// name and passes what is registered to the serving CA of its replica (ServingCA). While it leads
// it registers the caBundle of that CA, decides in plan without a client and writes with the
// resourceVersion that it has decided on. Status and Check are safe for concurrent use.
package registration
