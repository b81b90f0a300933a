// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package registration registers the webhook with kube-apiserver: it reconciles one
// MutatingWebhookConfiguration and one ValidatingWebhookConfiguration.
//
// Three rules come before keeping them correct.
//
// Nothing binds before it is proved. A webhook that the apiserver cannot reach blocks every Pod of
// a cluster. So the first entry matches probe Pods only, one of which is then created with dryRun=All;
// the real rules are written once that call has returned our answer. The answer of another replica
// counts too, unless a replica of another cluster could have given it (Config.Responder). Meanwhile
// entries that are bound already stay, and exempt probes. With a loopback URL (Spec.PerHost) the identity
// Leases must show kube-apiservers on one host only.
//
// A proof expires. It is repeated, counts only as the first request of its connection, and is forgotten when
// the webhook is switched off, when it fails, and when a term ends. What is bound stays bound without
// one. Another caBundle is proved before it is registered.
//
// Break-glass wins. The annotation sa-controller-manager/registration=off on either object stops
// all writing until it is removed, no matter which client has set it. It is read from the API
// itself before each write. An object that is deleted with the annotation is created again with it
// and without webhooks, unless the other object has it: otherwise the next leader would not know.
// An object that is deleted without it is created again with its webhooks, or without a proof with the probe alone. Both
// happen after a second in which both watches catch up.
//
// If another client reverts each write, a few repairs follow immediately and then one per second.
//
// With mode Static every replica keeps both configurations as files for the kube-apiserver of the same
// host instead (see StaticFiles): no API client can delete them, and they hold from its first request on.
// They are proved in the same way, and the proof is repeated. Nothing changes from one mode to the other
// while the webhook is registered: unregister it before, in the API or on each host.
//
// A Registrar runs on every replica. It watches the two objects by name and passes what is registered to
// the serving CA of its replica (ServingCA). While it leads it registers the caBundle of that CA, decides
// in plan without a client and writes with the resourceVersion that it has decided on. Status and Check
// are safe for concurrent use.
package registration
